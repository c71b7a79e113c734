//! Tests of coordinator.

use super::*;

const VIEW: RelationId = RelationId(1);
const OTHER: RelationId = RelationId(2);

fn coordinator() -> Coordinator {
    Coordinator::new(200, 1_000_000)
}

fn inject(epoch: u64) -> Vec<Action> {
    vec![Action::Inject { epoch: Epoch(epoch), kind: BarrierKind::Plain }]
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
