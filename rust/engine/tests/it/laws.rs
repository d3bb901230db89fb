//! The engine's guarantees, seen from outside.

use ahbm_engine::{Engine, Fifos, Limits, Resource, Stop, TaskId, Tasks, Time, Waiter, interrupt};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};

#[test]
fn sleepers_wake_by_time_then_by_order_of_posting() {
    let engine = Engine::new();
    let log = RefCell::new(Vec::new());
    let process = |name: u32, naps: &'static [Time]| {
        let (engine, log) = (&engine, &log);
        async move {
            for &nap in naps {
                engine.sleep_until(nap).await;
                log.borrow_mut().push((engine.now(), name));
            }
        }
    };
    let mut tasks = Tasks::new([process(0, &[5, 9]), process(1, &[5, 7]), process(2, &[1, 5])]);
    engine.run(&mut tasks, &Limits::default(), |_| {}).unwrap();
    assert_eq!(*log.borrow(), [(1, 2), (5, 0), (5, 1), (5, 2), (7, 1), (9, 0)]);
}

#[test]
fn leftover_work_is_a_deadlock_that_names_the_waiters() {
    let engine = Engine::new();
    let never = Waiter::default();
    let process = |waits: bool| {
        let (engine, never) = (&engine, &never);
        async move {
            if waits {
                never.enter(engine);
                engine.park().await;
            }
        }
    };
    let mut tasks = Tasks::new([process(false), process(true), process(false)]);
    assert_eq!(engine.run(&mut tasks, &Limits::default(), |_| {}), Err(Stop::Deadlock(vec![TaskId(1)])));
    assert_eq!(tasks.live(), 1);
}

#[test]
fn an_endless_run_that_nobody_wants_ends() {
    let run = || {
        let engine = Engine::new();
        let process = |engine| async move {
            let engine: &Engine = engine;
            loop {
                engine.sleep_until(engine.now() + 1).await;
            }
        };
        let mut tasks = Tasks::new([process(&engine)]);
        engine.run(&mut tasks, &Limits::default(), |_| {})
    };
    let ended = std::panic::catch_unwind(|| interrupt::watched(|| true, run));
    assert!(ended.unwrap_err().is::<interrupt::Interrupted>());
}

#[test]
fn limits_stop_an_endless_process() {
    for (limits, expected) in [
        (Limits { max_events: 100, ..Limits::default() }, Stop::EventLimit),
        (Limits { max_time: 100, ..Limits::default() }, Stop::TimeLimit),
    ] {
        let engine = Engine::new();
        let process = |engine| async move {
            let engine: &Engine = engine;
            loop {
                engine.sleep_until(engine.now() + 1).await;
            }
        };
        let mut tasks = Tasks::new([process(&engine)]);
        assert_eq!(engine.run(&mut tasks, &limits, |_| {}), Err(expected));
    }
}

#[test]
fn signals_reach_the_driver_in_order() {
    let engine = Engine::new();
    let process = async {
        engine.signal_at(7, 1);
        engine.signal_at(3, 2);
        engine.signal_at(7, 3);
    };
    let mut seen = Vec::new();
    engine.run(&mut Tasks::new([process]), &Limits::default(), |s| seen.push((engine.now(), s))).unwrap();
    assert_eq!(seen, [(3, 2), (7, 1), (7, 3)]);
}

#[test]
fn a_resource_serves_in_order_of_reservation() {
    let resource = Resource::default();
    assert_eq!(resource.reserve(10, 5), 10);
    assert_eq!(resource.reserve(11, 5), 15);
    assert_eq!(resource.reserve(30, 1), 30);
    resource.hold_until(40);
    assert_eq!(resource.reserve(30, 1), 40);
    assert_eq!(resource.free_at(), 41);
}

/// Sends `messages` through one queue; returns (when each was received, when each slot was claimed).
fn pipe(slots: u32, messages: usize, send: Time, wire: Time, work: Time, swap: bool) -> (Vec<Time>, Vec<Time>) {
    let engine = Engine::new();
    let mut fifos = Fifos::default();
    let id = fifos.add(slots);
    let (received, claimed, most) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()), Cell::new(0));
    let process = |sender: bool| {
        let (engine, fifos, received, claimed, most) = (&engine, &fifos, &received, &claimed, &most);
        async move {
            let mut t: Time = 0;
            for _ in 0..messages {
                if sender {
                    let credit = loop {
                        if let Some(credit) = fifos.try_claim(id) {
                            break credit;
                        }
                        fifos.sender(id).enter(engine);
                        engine.park().await;
                    };
                    t = (t + send).max(credit);
                    claimed.borrow_mut().push(t);
                    let (sent, taken) = fifos.progress(id);
                    most.set(most.get().max(sent - taken));
                    fifos.publish(id, t + wire, engine);
                } else {
                    let arrival = loop {
                        if let Some(arrival) = fifos.try_take(id) {
                            break arrival;
                        }
                        fifos.receiver(id).enter(engine);
                        engine.park().await;
                    };
                    t = t.max(arrival) + work;
                    received.borrow_mut().push(t);
                    fifos.release(id, t, engine);
                }
            }
        }
    };
    let mut tasks = Tasks::new(if swap { [process(false), process(true)] } else { [process(true), process(false)] });
    engine.run(&mut tasks, &Limits::default(), |_| {}).unwrap();
    assert!(most.get() <= slots, "more messages in a queue than slots");
    drop(tasks);
    (received.into_inner(), claimed.into_inner())
}

proptest! {
    /// In flight never exceeds the slots, times follow the closed recurrence, and who is polled first does not matter.
    #[test]
    fn queues_keep_their_credits(
        slots in 1u32..6, messages in 1usize..40, send in 0u64..50, wire in 0u64..50, work in 0u64..50,
    ) {
        let (received, claimed) = pipe(slots, messages, send, wire, work, false);
        let (mut clock, mut done) = (0, Vec::new());
        let mut sent = 0;
        for k in 0..messages {
            let credit = if k >= slots as usize { done[k - slots as usize] } else { 0 };
            sent = (sent + send).max(credit);
            prop_assert_eq!(claimed[k], sent);
            clock = clock.max(sent + wire) + work;
            done.push(clock);
        }
        prop_assert_eq!(&received, &done);
        prop_assert_eq!(pipe(slots, messages, send, wire, work, true), (received, claimed));
    }
}
