//! The results of pass 1.

use crate::Detail;
use ahbm_findings::Diagnostic;
use ahbm_machine::Ps;
use ahbm_program::ChannelId;

/// The end of an operation that did not come to it before the deadlock.
pub const NEVER: Ps = Ps::MAX;

/// When an operation ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Issue time, dispatch included.
    pub start: Ps,
    /// Completion; the moment its effect on data is defined, but for what is posted, which is written on arrival.
    pub end: Ps,
}

/// The result of the timing pass. Times count from the common launch time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timeline {
    /// Latency of the launch: the last agent's end.
    pub latency: Ps,
    /// Messages delivered through channels.
    pub messages: u64,
    /// Payload bytes delivered through channels.
    pub bytes: u64,
    /// Engine events processed.
    pub events: u64,
    /// Order-independent digest of every operation's times: equal inputs give equal hashes everywhere.
    pub hash: u64,
    /// End time per agent.
    pub ends: Vec<Ps>,
    /// Per agent and operation, in issue order; empty unless recording was asked for.
    pub spans: Vec<Vec<Span>>,
    /// Per agent, the channel chosen by each `recv(dir=None)` in issue order; empty when no agent has one.
    pub choices: Vec<Vec<ChannelId>>,
    /// Per agent, when each transfer that it posted arrived, in issue order; empty as `spans`, and when no agent posts.
    pub arrivals: Vec<Vec<Ps>>,
    /// Why each of these times; only when asked for.
    pub detail: Option<Box<Detail>>,
    /// The deadlock that this run ended in; only of [`crate::until_stuck`]. `latency` is then the last progress, and an
    /// operation that is not over has the end [`NEVER`].
    pub stuck: Option<Box<Diagnostic>>,
}
