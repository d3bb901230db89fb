//! The table of methods, and from a request to the best schedule that they find.

use crate::forms::{exchange, rings, trees};
use crate::method::{Method, Task};
use crate::request::{AUTO, Request, Synthesis, refuse};
use crate::{Bound, Graph, arborescences, greedy, routed};
use ahbm_findings::Diagnostic;
use ahbm_machine::Ps;
use log::{debug, info};

/// The target to which choices are logged.
const LOG: &str = "ahbm::synthesis";

/// The methods besides `auto`: searches, then closed forms. `auto` tries them in this order, and the first of those
/// that are equally quick wins.
pub static METHODS: [&dyn Method; 12] = [
    &greedy::Greedy,
    &crate::trees::Trees,
    &arborescences::Arborescences,
    &routed::Routed,
    &rings::RING,
    &rings::ONE_WAY_RING,
    &rings::DIMENSIONS,
    &exchange::HALVING_DOUBLING,
    &exchange::SWING,
    &rings::DIRECT,
    &trees::BINOMIAL,
    &trees::DOUBLE_BINARY,
];

/// Synthesizes the quickest schedule that the methods find; `limit` is what [`Request::bound`] said.
///
/// # Errors
/// `AHBM-U406` for a method that does not exist or does not do this collective on this network, and what the methods
/// report.
pub fn synthesize(graph: &Graph, request: &Request, limit: &Bound) -> Result<Synthesis, Diagnostic> {
    let found = choose(graph, request, limit);
    if let Ok(Synthesis { schedule, time_ps, .. }) = &found {
        let (name, npus, bound) = (request.collective.name(), graph.nodes(), limit.ps);
        info!(target: LOG, "{name} on {npus} NPUs: {} takes {time_ps} ps, the bound is {bound} ps", schedule.method);
    }
    found
}

fn choose(graph: &Graph, request: &Request, limit: &Bound) -> Result<Synthesis, Diagnostic> {
    let attempt = |method: &dyn Method, rival| {
        let task = Task { graph, request, limit, rival };
        let found = method.applies(request, graph).and_then(|()| method.find(&task));
        match &found {
            Ok(found) => debug!(target: LOG, "{} takes {} ps", method.name(), found.time_ps),
            Err(refused) => debug!(target: LOG, "{}", refused.message),
        }
        found
    };
    if request.method != "auto" {
        let Some(method) = METHODS.into_iter().find(|m| m.name() == request.method) else {
            let text = format!("no method {:?} for {}", request.method, request.collective.name());
            let names = METHODS.map(|m| m.name()).join(", ");
            return Err(Diagnostic::new("AHBM-U406", text).hint(format!("auto, {names}")));
        };
        return attempt(method, Ps::MAX);
    }
    let large = graph.nodes() > AUTO;
    let mut best = Err(refuse("auto", request.collective, "no method does"));
    for method in METHODS.into_iter().filter(|m| !large || !m.is_closed_form()) {
        let rival = best.as_ref().map_or(Ps::MAX, |found: &Synthesis| found.time_ps);
        match attempt(method, rival) {
            Ok(found) if found.time_ps < rival => best = Ok(found),
            Err(refused) if best.is_err() => best = Err(refused),
            _ => {}
        }
    }
    best
}
