//! The interface of synthesis methods. Each stands beside its algorithm; [`METHODS`](crate::METHODS) lists them.

use crate::list::arrange;
use crate::request::{Request, Synthesis};
use crate::schedule::{Schedule, split};
use crate::{Bound, Collective, Graph};
use ahbm_findings::Diagnostic;
use ahbm_machine::Ps;

/// A way to find a schedule.
pub trait Method: Sync {
    /// The name of the method in a request.
    fn name(&self) -> &'static str;

    /// The idea in one sentence, for help and documents.
    fn about(&self) -> &'static str;

    /// The method writes its schedule down rather than searching for it.
    fn is_closed_form(&self) -> bool {
        false
    }

    /// Says at little cost whether the method does the request on the network.
    ///
    /// # Errors
    /// `AHBM-U406` with the reason where it does not.
    fn applies(&self, request: &Request, graph: &Graph) -> Result<(), Diagnostic>;

    /// The schedule for a task to which the method applies.
    ///
    /// # Errors
    /// The errors that only the work itself can find: `AHBM-U406` where the method does not apply after all,
    /// `AHBM-U405`, `AHBM-U407` and `AHBM-B401` for networks and sizes that it cannot use.
    fn find(&self, task: &Task<'_>) -> Result<Synthesis, Diagnostic>;
}

/// The task of a method.
#[derive(Debug, Clone, Copy)]
pub struct Task<'a> {
    /// The network.
    pub graph: &'a Graph,
    /// The request to answer.
    pub request: &'a Request,
    /// The result of [`Request::bound`].
    pub limit: &'a Bound,
    /// A schedule that takes as long at least is of no use; a method may refuse rather than finish it.
    pub rival: Ps,
}

impl Task<'_> {
    /// The schedule of the request without transfers, its shares cut as asked.
    pub(crate) fn base(&self, method: &dyn Method) -> Schedule {
        let request = self.request;
        request.base(self.graph, method.name(), split(request.share_bytes, request.chunks, request.unit))
    }

    /// A schedule from the collective that spreads: a sum or a gather is its opposite over the links turned round,
    /// turned round in time.
    pub(crate) fn outwards(
        &self,
        method: &dyn Method,
        spread: impl FnOnce(&Graph, Schedule) -> Result<Schedule, Diagnostic>,
    ) -> Result<Schedule, Diagnostic> {
        let collective = self.request.collective;
        let opposite = match collective {
            Collective::ReduceScatter => Collective::AllGather,
            Collective::Reduce => Collective::Broadcast,
            Collective::Gather => Collective::Scatter,
            _ => return spread(self.graph, self.base(method)),
        };
        let base = Schedule { collective: opposite, ..self.base(method) };
        Ok(spread(&self.graph.reversed(), base)?.reversed(collective, collective.reduces()))
    }

    /// The result of a search and its cost.
    ///
    /// Turned round in time, what shared a port on its way into a switch shares one on its way out: the order there is
    /// made anew.
    pub(crate) fn found(&self, schedule: Schedule) -> Synthesis {
        let schedule = if self.graph.switch().is_some() { arrange(self.graph, schedule) } else { schedule };
        Synthesis::of(self.graph, schedule)
    }
}
