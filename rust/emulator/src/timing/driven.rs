//! A run that something outside the program drives: it opens gates when it likes, and learns of what was reached.

use super::recorder::Recorder;
use super::ties::Ties;
use super::wiring::{Cover, Wiring};
use super::{Beside, Options, Sim, ended, run};
use crate::Timeline;
use ahbm_engine::Time;
use ahbm_findings::Diagnostic;
use ahbm_machine::Machine;
use ahbm_program::Program;
use std::cell::RefCell;

/// What a driver wants to happen.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// Counters that one is added to, now.
    pub(crate) add: Vec<u32>,
    /// Moments at which the driver wants to be told a number of its own.
    pub(crate) alarms: Vec<(Time, u32)>,
    /// Whom the driver was told about, for whom the order of events at one moment may matter.
    pub(crate) concerned: Option<u32>,
}

/// Decides what a run does next.
pub(crate) trait Driver {
    /// The run begins, at time 0.
    fn begin(&mut self, orders: &mut Orders);
    /// A counter has reached the value that it is watched for.
    fn reached(&mut self, counter: u32, now: Time, orders: &mut Orders);
    /// The moment of an alarm has come.
    fn alarm(&mut self, alarm: u32, now: Time, orders: &mut Orders);
}

/// The driver of a run and, per counter, the value it is watched for; 0 where nobody cares.
pub(super) struct Seat<'a> {
    driver: RefCell<&'a mut dyn Driver>,
    watched: &'a [u32],
}

/// Runs the timing pass of a program whose gates `driver` opens. `watched` holds per counter the value at which the
/// driver is told, 0 for never. With a `cover`, it says where the order of two events at one moment could have mattered.
///
/// # Errors
/// As [`super::simulate`].
pub(crate) fn simulate_driven(
    program: &Program,
    machine: &Machine,
    options: &Options,
    cover: Option<Cover<'_>>,
    watched: &[u32],
    driver: &mut dyn Driver,
) -> Result<(Timeline, Option<&'static str>), Diagnostic> {
    let wiring = Wiring::new(program, machine, cover, options.max_hops)?;
    let ties = cover.map(|cover| Ties::new(&wiring, program, cover));
    let seat = Seat { driver: RefCell::new(driver), watched };
    let beside = Beside { driver: Some(seat), ties: ties.as_ref(), ..Beside::default() };
    let timeline = ended(run(program, machine, &wiring, options, beside)?)?;
    Ok((timeline, ties.and_then(|ties| ties.found())))
}

impl<R: Recorder> Sim<'_, R> {
    /// Lets the driver begin.
    pub(super) fn begin(&self) {
        self.ask(None, |driver, orders| driver.begin(orders));
    }

    /// Tells the driver of an alarm.
    pub(super) fn alarm(&self, alarm: u32) {
        self.ask(None, |driver, orders| driver.alarm(alarm, self.engine.now(), orders));
    }

    /// Tells the driver of a counter, where it is watched for this value.
    #[inline]
    pub(super) fn told(&self, counter: u32, value: u64) {
        if let Some(seat) = &self.driver
            && seat.watched.get(counter as usize).is_some_and(|&at| at > 0 && u64::from(at) == value)
        {
            self.ask(Some(counter), |driver, orders| driver.reached(counter, self.engine.now(), orders));
        }
    }

    /// `reached` is the counter that the question is about.
    fn ask(&self, reached: Option<u32>, question: impl FnOnce(&mut dyn Driver, &mut Orders)) {
        let Some(seat) = &self.driver else { return };
        let event = self.ties.map(|ties| ties.told(reached, self.engine.now()));
        let mut orders = Orders::default();
        question(&mut **seat.driver.borrow_mut(), &mut orders);
        if let (Some(ties), Some(whom)) = (self.ties, orders.concerned) {
            ties.happens(&self.engine, whom, reached.is_none());
        }
        let first = (self.wiring.links.len() + self.wiring.posters.len()) as u32;
        for (time, alarm) in orders.alarms {
            self.engine.signal_at(time, first + alarm);
        }
        // The driver is told of what these reach in turn, after what it was told of first.
        for counter in orders.add {
            if let (Some(ties), Some(event)) = (self.ties, event) {
                ties.adds(counter, event);
            }
            self.signal(counter, 1);
        }
    }
}
