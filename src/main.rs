//! The `millstream` program; see `cli.rs`.

mod cli;

/// State comes and goes in large pieces: jemalloc keeps pages for a while, and then gives them back to the system.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
