use super::*;
use proptest::prelude::{Just, Strategy, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

const SMALL: Resources = Resources { cpu: 2, memory_mb: 2048, disk_mb: 5120 };

fn capacity(cpu: u64, memory_mb: u64, disk_mb: u64) -> Capacity {
    Capacity { cpu, memory_mb, disk_mb }
}

#[test]
fn overcommit_multiplies_and_bad_factors_give_nothing() {
    let host = Host { cpu: 2, memory_mb: 24_000, disk_mb: 100_000 };
    let capacity = Capacity::new(host, Overcommit { cpu: 8.0, memory: 1.5, disk: 0.5 });
    assert_eq!(capacity, Capacity { cpu: 16, memory_mb: 36_000, disk_mb: 50_000 });
    let nothing = Capacity::new(host, Overcommit { cpu: f64::NAN, memory: -1.0, disk: f64::NEG_INFINITY });
    assert_eq!(nothing, Capacity { cpu: 0, memory_mb: 0, disk_mb: 0 });
    assert_eq!(Capacity::new(host, Overcommit { cpu: f64::INFINITY, memory: 1.0, disk: 1.0 }).cpu, u64::MAX);
}

#[test]
fn exactly_what_is_free_fits_and_one_more_does_not() {
    let capacity = capacity(4, 4096, 10_240);
    let one = capacity.admit(Usage::default(), SMALL).unwrap();
    let two = capacity.admit(one, SMALL).unwrap();
    assert_eq!(two, Usage { cpu: 4, memory_mb: 4096, disk_mb: 10_240 });
    assert_eq!(
        capacity.admit(two, SMALL),
        Err(Exhausted { resource: Resource::Cpu, requested: 2, free: 0, total: 4 })
    );
    assert_eq!(two.release(SMALL, ProcessState::Running), one);
}

#[test]
fn the_refusal_names_what_is_missing() {
    let missing = |capacity: Capacity| capacity.admit(Usage::default(), SMALL).unwrap_err();
    assert_eq!(
        missing(capacity(9, 2047, 9999)),
        Exhausted { resource: Resource::Memory, requested: 2048, free: 2047, total: 2047 }
    );
    assert_eq!(missing(capacity(9, 9999, 5119)).resource, Resource::Disk);
    assert_eq!(
        missing(capacity(1, 9999, 9999)).to_string(),
        "the host lacks capacity: 2 vCPUs requested, 1 of 1 free; pause or terminate other sandboxes; \
         the limit is 1 vCPUs for all sandboxes (the operator sets capacity.overcommit_cpu)"
    );
}

#[test]
fn a_paused_sandbox_holds_only_its_disk() {
    let capacity = capacity(2, 2048, 20_480);
    let running = capacity.admit(Usage::default(), SMALL).unwrap();
    let paused = running.pause(SMALL);
    assert_eq!(paused, Usage { cpu: 0, memory_mb: 0, disk_mb: 5120 });
    let other = capacity.admit(paused, SMALL).unwrap();
    assert_eq!(
        capacity.resume(other, SMALL, ProcessState::Frozen),
        Err(Exhausted { resource: Resource::Cpu, requested: 2, free: 0, total: 2 })
    );
    let alone = other.release(SMALL, ProcessState::Running);
    assert_eq!(capacity.resume(alone, SMALL, ProcessState::Frozen), Ok(running));
    assert_eq!(alone.release(SMALL, ProcessState::Frozen), Usage::default());
}

#[test]
fn a_stopped_sandbox_needs_vcpus_and_memory_to_start() {
    let used = Usage::default().plus(Usage::of(SMALL, ProcessState::Ended));
    assert_eq!(used, Usage { cpu: 0, memory_mb: 0, disk_mb: 5120 });
    assert_eq!(
        capacity(2, 2048, 5120).resume(used, SMALL, ProcessState::Ended),
        Ok(Usage::of(SMALL, ProcessState::Running))
    );
    let full = capacity(2, 2047, 5120).resume(used, SMALL, ProcessState::Ended);
    assert_eq!(full.unwrap_err().resource, Resource::Memory);
}

#[test]
fn over_capacity_in_one_resource_still_gives_the_others() {
    let used = Usage { cpu: 0, memory_mb: 0, disk_mb: 9999 };
    let resumed = capacity(4, 8192, 8192).resume(used, SMALL, ProcessState::Frozen);
    assert_eq!(resumed.unwrap().cpu, 2);
}

#[test]
fn three_run_and_the_fourth_is_refused() {
    let mut slots = Slots::new(SlotKind::Attached, 3, 0);
    for _ in 0..3 {
        assert_eq!(slots.acquire(), Ok(Slot::Run));
    }
    let refusal = slots.acquire().unwrap_err();
    let kind = SlotKind::Attached;
    assert_eq!(refusal, TooManyExecutions { kind, running: 3, queued: 0, limit: 3, queue_limit: 0 });
    assert_eq!(
        refusal.to_string(),
        "3 commands are running in the sandbox; wait until one has ended; the limit is 3 commands at a time in a sandbox \
         (the operator sets limits.concurrent_executions)"
    );
    assert_eq!(slots.release(), Next::Idle);
    assert_eq!(slots.acquire(), Ok(Slot::Run));
}

#[test]
fn the_refusal_of_a_detached_command_names_its_own_limit() {
    let mut slots = Slots::new(SlotKind::Detached, 1, 1);
    assert_eq!((slots.acquire(), slots.acquire()), (Ok(Slot::Run), Ok(Slot::Queue)));
    let refusal = slots.acquire().unwrap_err();
    assert_eq!(refusal.limit().key.as_deref(), Some("limits.detached_executions"));
    assert_eq!(
        refusal.why(),
        "1 detached commands and terminals are running in the sandbox, and 1 of at most 1 wait (limits.execution_queue); wait \
         until one has ended"
    );
}

#[test]
fn queued_requests_get_slots_in_order() {
    let mut slots = Slots::new(SlotKind::Attached, 1, 2);
    assert_eq!(slots.acquire(), Ok(Slot::Run));
    assert_eq!((slots.acquire(), slots.acquire()), (Ok(Slot::Queue), Ok(Slot::Queue)));
    assert!(slots.acquire().is_err());
    slots.cancel();
    assert_eq!(slots.release(), Next::RunQueued);
    assert_eq!((slots.running(), slots.queued()), (1, 0));
    assert_eq!(slots.release(), Next::Idle);
    assert_eq!((slots.running(), slots.queued()), (0, 0));
}

fn resources() -> impl Strategy<Value = Resources> {
    (prop_oneof![Just(2u32), Just(4), Just(8)], 2048u32..=16_384, 5120u32..=51_200)
        .prop_map(|(cpu, memory_mb, disk_mb)| Resources { cpu, memory_mb, disk_mb })
}

proptest! {
    /// For any sequence of requests, the ledger equals the sum of what living sandboxes hold, and never exceeds the capacity.
    #[test]
    fn the_ledger_matches_the_model_and_never_exceeds_capacity(
        total in (2u64..64, 2048u64..200_000, 5120u64..400_000),
        calls in prop::collection::vec((0u8..5, resources(), 0usize..8), 0..120),
    ) {
        let capacity = capacity(total.0, total.1, total.2);
        let (mut used, mut living) = (Usage::default(), Vec::<(Resources, ProcessState)>::new());
        for (call, requested, which) in calls {
            let which = which % living.len().max(1);
            match (call, living.get(which).copied()) {
                (0 | 1, _) => if let Ok(more) = capacity.admit(used, requested) {
                    used = more;
                    living.push((requested, ProcessState::Running));
                },
                (2, Some((held, ProcessState::Running))) => {
                    used = used.pause(held);
                    living[which].1 = ProcessState::Frozen;
                }
                (3, Some((held, from @ (ProcessState::Frozen | ProcessState::Ended)))) => {
                    if let Ok(more) = capacity.resume(used, held, from) {
                        used = more;
                        living[which].1 = ProcessState::Running;
                    }
                }
                (4, Some((held, processes))) => {
                    used = used.release(held, processes);
                    living.swap_remove(which);
                }
                _ => {}
            }
            let sum = living.iter().fold(Usage::default(), |sum, (held, processes)| sum.plus(Usage::of(*held, *processes)));
            prop_assert_eq!(used, sum);
            prop_assert!(used.cpu <= capacity.cpu);
            prop_assert!(used.memory_mb <= capacity.memory_mb && used.disk_mb <= capacity.disk_mb);
        }
    }

    /// Against a model that is a plain queue.
    #[test]
    fn slots_are_a_queue(limit in 0u32..4, queue_limit in 0u32..4, calls in prop::collection::vec(0u8..3, 0..80)) {
        let mut slots = Slots::new(SlotKind::Attached, limit, queue_limit);
        let (mut running, mut waiting) = (0u32, 0u32);
        for call in calls {
            match call {
                0 => match slots.acquire() {
                    Ok(Slot::Run) => running += 1,
                    Ok(Slot::Queue) => { prop_assert_eq!(running, limit); waiting += 1 }
                    Err(_) => prop_assert!(running == limit && waiting == queue_limit),
                },
                1 if running > 0 => {
                    if slots.release() == Next::RunQueued { waiting -= 1 } else { running -= 1 }
                }
                2 if waiting > 0 => { slots.cancel(); waiting -= 1 }
                _ => {}
            }
            prop_assert_eq!((slots.running(), slots.queued()), (running, waiting));
            prop_assert!(running <= limit && waiting <= queue_limit);
            prop_assert!(waiting == 0 || running == limit);
        }
    }
}
