//! Tests of coordinator.

use super::*;

const VIEW: RelationId = RelationId(1);
const OTHER: RelationId = RelationId(2);

fn options() -> CheckpointOptions {
    CheckpointOptions { interval_ms: 1_000_000, ..CheckpointOptions::default() }
}

fn coordinator() -> Coordinator {
    Coordinator::new(200, options())
}

fn inject(epoch: u64) -> Vec<Action> {
    vec![Action::Inject { epoch: Epoch(epoch), kind: BarrierKind::Plain, runs_ahead: false }]
}

fn checkpoint(epoch: u64, runs_ahead: bool) -> Vec<Action> {
    let (epoch, kind) = (Epoch(epoch), BarrierKind::Checkpoint);
    vec![Action::Inject { epoch, kind, runs_ahead }]
}

/// With one active view, and recovered.
fn durable(options: CheckpointOptions) -> Coordinator {
    let mut c = Coordinator::new(200, options).durable(Epoch(0));
    c.add(VIEW, 1, 0);
    c.settle();
    assert_eq!(c.handle(0, Input::Durable), []);
    c
}

fn publish(epoch: u64, ready: &[RelationId]) -> Vec<Action> {
    vec![Action::Publish { epoch: Epoch(epoch), ready: ready.to_vec() }]
}

fn ack(job: RelationId, root: usize, epoch: u64) -> Input {
    Input::Acknowledged { job, root, epoch: Epoch(epoch) }
}

#[test]
fn no_data_no_epoch() {
    let mut c = coordinator();
    assert_eq!(c.handle(10_000, Input::Tick { drained: true }), []);
    assert!(!c.wants_ticks());
}

#[test]
fn an_epoch_ends_when_sources_are_drained_or_after_the_interval() {
    let mut c = coordinator();
    let actions = c.handle(10, Input::Data { drained: true });
    // Without jobs nobody has to pass it.
    assert_eq!(actions, [inject(1), publish(1, &[])].concat());
    assert_eq!(c.handle(100, Input::Data { drained: false }), []);
    assert_eq!(c.handle(209, Input::Tick { drained: false }), []);
    let actions = c.handle(210, Input::Tick { drained: false });
    assert_eq!(actions, [inject(2), publish(2, &[])].concat());
}

#[test]
fn without_jobs_a_flush_ends_at_once() {
    let mut c = coordinator();
    assert_eq!(c.handle(10, Input::Urgent), [inject(1), publish(1, &[])].concat());
}

#[test]
fn an_epoch_is_readable_when_all_tasks_of_active_jobs_have_passed_it() {
    let mut c = coordinator();
    c.add(VIEW, 2, 0);
    assert_eq!(c.settle(), publish(0, &[VIEW]));
    assert_eq!(c.handle(10, Input::Data { drained: true }), inject(1));
    assert_eq!(c.handle(11, ack(VIEW, 0, 1)), []);
    assert_eq!(c.handle(12, ack(VIEW, 1, 1)), publish(1, &[]));
}

#[test]
fn under_load_barriers_do_not_pile_up() {
    let mut c = coordinator();
    c.add(VIEW, 1, 0);
    c.settle();
    assert_eq!(c.handle(10, Input::Urgent), inject(1));
    assert_eq!(c.handle(11, Input::Urgent), inject(2));
    assert_eq!(c.handle(12, Input::Urgent), []);
    let actions = c.handle(13, ack(VIEW, 0, 1));
    assert_eq!(actions, [publish(1, &[]), inject(3)].concat());
    assert_eq!(c.handle(5000, Input::Data { drained: true }), []);
}

#[test]
fn a_backfilling_job_holds_up_nobody_and_joins_when_it_has_caught_up() {
    let mut c = coordinator();
    c.add(VIEW, 1, 0);
    c.settle();
    assert_eq!(c.handle(0, Input::Change), inject(1));
    c.add(OTHER, 1, 1);
    assert_eq!(c.handle(1, ack(VIEW, 0, 1)), publish(1, &[]));
    assert!(c.wants_ticks());
    assert_eq!(c.handle(10, Input::Tick { drained: true }), inject(2));
    assert_eq!(c.handle(11, ack(VIEW, 0, 2)), publish(2, &[]));
    // Its scan ended before barrier 2, but it has not passed that barrier yet.
    assert_eq!(c.handle(12, Input::Hydrated { job: OTHER, epoch: Epoch(2) }), []);
    assert_eq!(c.handle(13, ack(OTHER, 0, 2)), publish(2, &[OTHER]));
    // From now on it is waited for.
    assert_eq!(c.handle(20, Input::Urgent), inject(3));
    assert_eq!(c.handle(21, ack(VIEW, 0, 3)), []);
    assert_eq!(c.handle(22, ack(OTHER, 0, 3)), publish(3, &[]));
}

/// Barriers go each 5 ms while a job is being filled; it takes 8 ms to pass one, the other job 1 ms.
#[test]
fn a_job_that_is_slower_than_others_becomes_readable_too() {
    let mut c = coordinator();
    c.add(VIEW, 1, 0);
    c.settle();
    assert_eq!(c.handle(0, Input::Change), inject(1));
    c.add(OTHER, 1, 1);
    assert_eq!(c.handle(1, ack(VIEW, 0, 1)), publish(1, &[]));
    assert_eq!(c.handle(5, Input::Tick { drained: true }), inject(2));
    assert_eq!(c.handle(6, ack(VIEW, 0, 2)), publish(2, &[]));
    assert_eq!(c.handle(10, Input::Tick { drained: true }), inject(3));
    assert_eq!(c.handle(11, ack(VIEW, 0, 3)), publish(3, &[]));
    assert_eq!(c.handle(12, Input::Hydrated { job: OTHER, epoch: Epoch(2) }), []);
    // What is readable has gone on meanwhile. It does so no more before the slower job has passed it.
    assert_eq!(c.handle(13, ack(OTHER, 0, 2)), []);
    assert_eq!(c.handle(15, Input::Tick { drained: true }), inject(4));
    assert_eq!(c.handle(16, ack(VIEW, 0, 4)), []);
    assert_eq!(c.complete_at(Epoch(4)), [VIEW]);
    assert_eq!(c.handle(18, ack(OTHER, 0, 3)), publish(3, &[OTHER]));
    assert_eq!(c.handle(20, Input::Tick { drained: true }), []);
    assert_eq!(c.handle(23, ack(OTHER, 0, 4)), publish(4, &[]));
    assert_eq!(c.complete_at(Epoch(4)), [VIEW, OTHER]);
}

#[test]
fn a_failed_job_is_not_waited_for() {
    let mut c = coordinator();
    c.add(VIEW, 1, 0);
    c.add(OTHER, 1, 0);
    c.settle();
    c.handle(10, Input::Urgent);
    assert_eq!(c.handle(11, ack(VIEW, 0, 1)), []);
    c.remove(OTHER);
    assert_eq!(c.settle(), publish(1, &[]));
}

#[test]
fn a_job_that_is_ahead_of_the_readable_epoch_is_not_readable_yet() {
    let mut c = coordinator();
    c.add(VIEW, 1, 0);
    c.settle();
    c.add(OTHER, 1, 1);
    assert_eq!(c.handle(10, Input::Urgent), inject(1));
    c.handle(11, Input::Hydrated { job: OTHER, epoch: Epoch(1) });
    // At epoch 0, which is still the readable one, its contents are not complete.
    assert_eq!(c.handle(12, ack(OTHER, 0, 1)), []);
    assert_eq!(c.handle(13, ack(VIEW, 0, 1)), publish(1, &[OTHER]));
}

/// A source that nobody reads stops, and starts again with the next reader: the last word of its old task may come late.
#[test]
fn a_late_acknowledgement_takes_nothing_back() {
    let mut c = coordinator();
    c.add(VIEW, 1, 0);
    c.settle();
    assert_eq!(c.handle(0, Input::Urgent), inject(1));
    assert_eq!(c.handle(0, ack(VIEW, 0, 1)), publish(1, &[]));
    c.remove(VIEW);
    c.add(VIEW, 1, 0);
    c.settle();
    assert_eq!(c.handle(1, Input::Urgent), inject(2));
    assert_eq!(c.handle(1, ack(VIEW, 0, 2)), publish(2, &[]));
    assert_eq!(c.handle(1, ack(VIEW, 0, 1)), vec![]);
    assert_eq!(c.handle(2, Input::Urgent), inject(3));
    assert_eq!(c.handle(2, ack(VIEW, 0, 3)), publish(3, &[]));
    assert_eq!(c.in_flight(), 0);
}

#[test]
fn a_checkpoint_that_takes_too_long_is_given_up_and_the_next_one_tried() {
    let mut c = durable(CheckpointOptions {
        interval_ms: 100,
        timeout_ms: 500,
        ..CheckpointOptions::default()
    });
    assert_eq!(c.handle(100, Input::Data { drained: true }), checkpoint(1, false));
    assert_eq!(c.handle(600, Input::Tick { drained: true }), []);
    assert!(c.wants_ticks());
    let given_up = vec![Action::GiveUp { epoch: Epoch(1) }];
    assert_eq!(c.handle(601, Input::Tick { drained: true }), given_up);
    // It is said once.
    assert_eq!(c.handle(900, Input::Tick { drained: true }), []);
    assert_eq!(c.handle(901, Input::GivenUp), []);
    // Its barrier is still on its way; what it was to hold is due without new data.
    assert_eq!(c.handle(902, ack(VIEW, 0, 1)), publish(1, &[]));
    assert_eq!(c.handle(903, Input::Tick { drained: true }), checkpoint(2, false));
}

#[test]
fn between_checkpoints_there_is_the_minimum_pause() {
    let mut c = durable(CheckpointOptions {
        interval_ms: 100,
        min_pause_ms: 300,
        ..CheckpointOptions::default()
    });
    assert_eq!(c.handle(300, Input::Data { drained: true }), checkpoint(1, false));
    assert_eq!(c.handle(301, ack(VIEW, 0, 1)), publish(1, &[]));
    c.handle(450, Input::Durable);
    let plain = c.handle(500, Input::Data { drained: true });
    assert_eq!(plain, inject(2));
    c.handle(501, ack(VIEW, 0, 2));
    assert_eq!(c.handle(749, Input::Tick { drained: true }), []);
    assert_eq!(c.handle(750, Input::Tick { drained: true }), checkpoint(3, false));
    c.handle(751, ack(VIEW, 0, 3));
    c.handle(752, Input::Durable);
    // Who asks for one gets it at once.
    assert_eq!(c.handle(753, Input::Checkpoint), checkpoint(4, false));
}

#[test]
fn an_epoch_that_tasks_may_run_ahead_of_is_readable_with_the_next_one() {
    let mut c = durable(CheckpointOptions {
        interval_ms: 100,
        mode: CheckpointMode::AtLeastOnce,
        ..CheckpointOptions::default()
    });
    assert_eq!(c.handle(100, Input::Data { drained: true }), checkpoint(1, true));
    assert_eq!(c.handle(101, ack(VIEW, 0, 1)), inject(2));
    assert_eq!(c.handle(102, ack(VIEW, 0, 2)), publish(2, &[]));
    assert_eq!(c.handle(103, Input::Durable), []);
    // Definitions change at barriers that everything waits for.
    assert_eq!(c.handle(300, Input::Change), checkpoint(3, false));
}

#[test]
fn time_comes_to_jobs_that_need_it_without_data() {
    let mut c = coordinator();
    c.add(VIEW, 1, 0);
    c.settle();
    c.set_step(VIEW, Some(500));
    assert_eq!(c.handle(499, Input::Tick { drained: true }), []);
    assert_eq!(c.handle(500, Input::Tick { drained: true }), inject(1));
    assert_eq!(c.handle(5000, Input::Tick { drained: true }), [], "one is on its way");
    assert_eq!(c.handle(5001, ack(VIEW, 0, 1)), publish(1, &[]));
    assert_eq!(c.handle(5002, Input::Tick { drained: true }), inject(2));
}
