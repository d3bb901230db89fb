//! From a request to the best schedule found.

use crate::greedy::spread;
use crate::routed::route;
use crate::schedule::{Schedule, split};
use crate::trees::Packing;
use crate::{Bound, Collective, Graph, bound, rings};
use ahbm_machine::Diagnostic;

/// What to synthesize.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The collective.
    pub collective: Collective,
    /// Bytes of one share: of the whole buffer for all-reduce, broadcast and reduce; of one NPU's part of it for the
    /// others.
    pub share_bytes: u64,
    /// Chunks of one share; trees choose their own number.
    pub chunks: u32,
    /// No chunk boundary falls inside a unit: the element size.
    pub unit: u64,
    /// Root of rooted collectives.
    pub root: u32,
    /// `auto` or one of [`METHODS`].
    pub method: String,
    /// Seed of every random choice.
    pub seed: u64,
}

/// Names of the methods, besides `auto`.
pub const METHODS: [&str; 4] = ["greedy", "trees", "ring", "routed"];

/// Most chunks a schedule may keep track of, over all NPUs.
const REGISTERS: u64 = 400_000_000;

/// A schedule and what it costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthesis {
    /// The schedule.
    pub schedule: Schedule,
    /// Time of the schedule.
    pub time_ps: u64,
    /// Rounds of the schedule if every chunk took one.
    pub rounds: u64,
}

impl Request {
    /// Checks the request and bounds it.
    ///
    /// # Errors
    /// `AHBM-B401` for more chunks than memory is meant to hold, `AHBM-U407` for sizes that cannot be cut as asked,
    /// `AHBM-U408` for a root that does not exist.
    pub fn bound(&self, graph: &Graph) -> Result<Bound, Diagnostic> {
        let (n, collective, request) = (graph.nodes(), self.collective, self);
        let units = request.share_bytes / request.unit.max(1);
        if request.chunks == 0
            || !request.share_bytes.is_multiple_of(request.unit.max(1))
            || units < u64::from(request.chunks)
        {
            let (bytes, chunks, unit) = (request.share_bytes, request.chunks, request.unit);
            let text = format!("{bytes} bytes cannot be cut into {chunks} chunks of whole elements of {unit} bytes");
            return Err(Diagnostic::new("AHBM-U407", text).hint("ask for fewer chunks or for more bytes"));
        }
        if request.root >= n {
            return Err(Diagnostic::new("AHBM-U408", format!("root {} of {n} NPUs", request.root)));
        }
        let pairs = if collective == Collective::AllToAll { u64::from(n) } else { 1 };
        let registers = u64::from(collective.shares(n)) * pairs * u64::from(request.chunks) * u64::from(n);
        if registers > REGISTERS {
            let text =
                format!("{} chunks on {n} NPUs make {registers} registers, more than {REGISTERS}", request.chunks);
            return Err(Diagnostic::new("AHBM-B401", text).hint("ask for fewer chunks"));
        }
        Ok(bound(graph, collective, self.share_bytes, self.chunks, self.root))
    }
}

/// Synthesizes the quickest schedule that the methods find; `limit` is what [`Request::bound`] said.
///
/// # Errors
/// `AHBM-U406` for a method that does not exist or does not do this collective, and what the methods report.
pub fn synthesize(graph: &Graph, request: &Request, limit: &Bound) -> Result<Synthesis, Diagnostic> {
    let mut candidates = Vec::new();
    for method in METHODS {
        let asked = request.method == method;
        if !asked && request.method != "auto" {
            continue;
        }
        match candidate(graph, request, limit, method) {
            Ok(Some(schedule)) => candidates.push((schedule.times(graph, false).total_ps, schedule)),
            Err(finding) if asked => return Err(finding),
            _ => {}
        }
    }
    let Some((time_ps, schedule)) = candidates.into_iter().min_by_key(|c| c.0) else {
        let text = format!("no method {:?} for {}", request.method, request.collective.name());
        return Err(Diagnostic::new("AHBM-U406", text).hint(format!("auto, {}", METHODS.join(", "))));
    };
    let rounds = schedule.rounds(graph);
    Ok(Synthesis { schedule, time_ps, rounds })
}

/// The schedule of one method; `None` when it does not do this collective on this network.
fn candidate(graph: &Graph, request: &Request, limit: &Bound, method: &str) -> Result<Option<Schedule>, Diagnostic> {
    use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
    let collective = request.collective;
    let n = graph.nodes();
    let auto = request.method == "auto";
    let empty = |method, shares: u32, pieces: u32| Schedule {
        collective,
        method,
        root: request.root,
        shares,
        chunk_bytes: split(request.share_bytes, pieces, request.unit),
        transfers: Vec::new(),
    };
    let one = |method| empty(method, collective.shares(n), request.chunks);
    Ok(match (method, collective) {
        ("greedy", AllGather | Broadcast) => {
            Some(spread(graph, one(method_name(method)), limit.rounds(request.chunks.into()), request.seed))
        }
        ("greedy", ReduceScatter | Reduce) => {
            let towards = if collective == Reduce { Broadcast } else { AllGather };
            let base = Schedule { collective: towards, ..one("greedy") };
            Some(
                spread(&graph.reversed(), base, limit.rounds(request.chunks.into()), request.seed)
                    .reversed(collective, true),
            )
        }
        ("greedy", AllReduce) if request.share_bytes / request.unit >= u64::from(n) && !(auto && n > 256) => {
            Some(composed(graph, request))
        }
        ("trees", AllReduce) => {
            let fluid = 1000.0 * limit.cut.demand as f64 / (limit.cut.capacity as f64 * graph.unit_gbs());
            let packing = Packing::new(graph, fluid, request.seed)?;
            Some(packing.schedule(graph, request.share_bytes, request.unit))
        }
        ("ring", AllReduce | AllGather | ReduceScatter) if !(auto && n > 256) => rings::ring(graph, request)?,
        ("routed", Scatter | AllToAll) => Some(route(graph, one("routed"), request.seed)),
        ("routed", Gather) => {
            let base = Schedule { collective: Scatter, ..one("routed") };
            Some(route(&graph.reversed(), base, request.seed).reversed(collective, false))
        }
        _ => None,
    })
}

fn method_name(method: &str) -> &'static str {
    METHODS.into_iter().find(|m| *m == method).unwrap_or("auto")
}

/// Reduce-scatter followed by all-gather, without a pause in between.
fn composed(graph: &Graph, request: &Request) -> Schedule {
    let n = graph.nodes();
    let pieces = (request.share_bytes / request.unit / u64::from(n)).min(u64::from(request.chunks.max(1))) as u32;
    let chunk_bytes = split(request.share_bytes, n * pieces.max(1), request.unit);
    let share = request.share_bytes / u64::from(n);
    // One size for all while searching; the true sizes differ by a unit at most.
    let base = |collective| Schedule {
        collective,
        method: "greedy",
        root: 0,
        shares: n,
        chunk_bytes: vec![chunk_bytes[0]; pieces.max(1) as usize],
        transfers: Vec::new(),
    };
    let rounds = |graph: &Graph| bound(graph, Collective::AllGather, share, 1, 0).rounds(pieces.max(1).into());
    let back = graph.reversed();
    let mut schedule = spread(&back, base(Collective::AllGather), rounds(&back), request.seed);
    schedule = schedule.reversed(Collective::AllReduce, true);
    schedule.transfers.extend(spread(graph, base(Collective::AllGather), rounds(graph), request.seed).transfers);
    Schedule { shares: 1, chunk_bytes, ..schedule }
}
