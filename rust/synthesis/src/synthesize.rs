//! From a request to the best schedule found.

use crate::arborescences::arborescences;
use crate::bound::bound_among;
use crate::forms::{FORMS, form};
use crate::greedy::spread;
use crate::list::arrange;
use crate::routed::route;
use crate::schedule::{Schedule, Transfer, split};
use crate::trees::Packing;
use crate::{Bound, Collective, Graph, bound};
use ahbm_machine::{Diagnostic, Ps};

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
    /// The NPUs that take part, by rank; empty for all of them.
    pub members: Vec<u32>,
    /// Root of rooted collectives, a rank.
    pub root: u32,
    /// `auto` or one of [`METHODS`].
    pub method: String,
    /// Seed of every random choice.
    pub seed: u64,
}

/// Names of the methods, besides `auto`: searches, then closed forms.
pub const METHODS: [&str; 12] = [
    "greedy",
    "trees",
    "arborescences",
    "routed",
    "ring",
    "one_way_ring",
    "dimensions",
    "halving_doubling",
    "swing",
    "direct",
    "binomial",
    "double_binary",
];

/// Most NPUs for which `auto` tries everything.
const AUTO: u32 = 256;
/// Most chunks a schedule may keep track of, over all NPUs.
const REGISTERS: u64 = 400_000_000;

/// A schedule and what it costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthesis {
    /// The schedule.
    pub schedule: Schedule,
    /// Time of the schedule.
    pub time_ps: u64,
    /// Rounds of the schedule if every transfer took one.
    pub rounds: u64,
}

impl Synthesis {
    /// A schedule and what it costs on `graph`.
    pub fn of(graph: &Graph, schedule: Schedule) -> Self {
        let times = schedule.times(graph, false);
        Self { schedule, time_ps: times.total_ps, rounds: times.rounds }
    }
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
        let mut seen = vec![false; n as usize];
        for &member in &request.members {
            if member >= n || std::mem::replace(&mut seen[member as usize], true) {
                let text = format!("NPU {member} in a group of {n} NPUs, or twice in it");
                return Err(Diagnostic::new("AHBM-U408", text));
            }
        }
        let ranks = request.group(graph).len() as u32;
        if request.root >= ranks || ranks < 2 {
            return Err(Diagnostic::new("AHBM-U408", format!("root {} of {ranks} ranks", request.root)));
        }
        let pairs = if collective == Collective::AllToAll { u64::from(ranks) } else { 1 };
        let registers = u64::from(collective.shares(ranks)) * pairs * u64::from(request.chunks) * u64::from(n);
        if registers > REGISTERS {
            let text =
                format!("{} chunks on {n} NPUs make {registers} registers, more than {REGISTERS}", request.chunks);
            return Err(Diagnostic::new("AHBM-B401", text).hint("ask for fewer chunks"));
        }
        if self.members.is_empty() {
            return Ok(bound(graph, collective, self.share_bytes, self.chunks, self.root));
        }
        let root = self.members[self.root as usize];
        Ok(bound_among(graph, &self.members, collective, self.share_bytes, self.chunks, root))
    }

    /// The NPUs that take part, by rank.
    pub(crate) fn group(&self, graph: &Graph) -> Vec<u32> {
        if self.members.is_empty() { (0..graph.nodes()).collect() } else { self.members.clone() }
    }

    /// A schedule without transfers.
    pub(crate) fn base(&self, graph: &Graph, method: &'static str, chunk_bytes: Vec<u64>) -> Schedule {
        let members = self.group(graph);
        Schedule {
            collective: self.collective,
            method,
            root: self.root,
            shares: self.collective.shares(members.len() as u32),
            members,
            chunk_bytes,
            parcels: Vec::new(),
            transfers: Vec::new(),
        }
    }
}

/// A method does not do a collective on a network, and why.
pub(crate) fn refuse(method: &str, collective: Collective, why: &str) -> Diagnostic {
    Diagnostic::new("AHBM-U406", format!("the method {method} does not apply to {}: {why}", collective.name()))
        .hint("`auto` takes the quickest method that applies")
}

/// Synthesizes the quickest schedule that the methods find; `limit` is what [`Request::bound`] said.
///
/// # Errors
/// `AHBM-U406` for a method that does not exist or does not do this collective on this network, and what the methods
/// report.
pub fn synthesize(graph: &Graph, request: &Request, limit: &Bound) -> Result<Synthesis, Diagnostic> {
    if request.method != "auto" {
        let Some(method) = METHODS.into_iter().find(|m| *m == request.method) else {
            let text = format!("no method {:?} for {}", request.method, request.collective.name());
            return Err(Diagnostic::new("AHBM-U406", text).hint(format!("auto, {}", METHODS.join(", "))));
        };
        return candidate(graph, request, limit, method, Ps::MAX);
    }
    let large = graph.nodes() > AUTO;
    let mut best = Err(refuse("auto", request.collective, "no method does"));
    for method in METHODS.into_iter().filter(|m| !large || !FORMS.contains(m)) {
        let rival = best.as_ref().map_or(Ps::MAX, |found: &Synthesis| found.time_ps);
        match candidate(graph, request, limit, method, rival) {
            Ok(found) if found.time_ps < rival => best = Ok(found),
            Err(refused) if best.is_err() => best = Err(refused),
            _ => {}
        }
    }
    best
}

/// The schedule of one method. A closed form need not be finished where it takes as long as a `rival` at least.
fn candidate(
    graph: &Graph,
    request: &Request,
    limit: &Bound,
    method: &'static str,
    rival: Ps,
) -> Result<Synthesis, Diagnostic> {
    use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
    if FORMS.contains(&method) {
        return form(graph, request, method, rival).map(|found| Synthesis::of(graph, found));
    }
    let collective = request.collective;
    let n = graph.nodes();
    let one = || request.base(graph, method, split(request.share_bytes, request.chunks, request.unit));
    let rounds = limit.rounds(request.chunks.into()).filter(|_| rounded(graph, request));
    let found = match (method, collective) {
        ("greedy", AllGather | Broadcast) => {
            let found = spread(graph, one(), rounds, request.seed);
            if graph.switch().is_none() {
                return Ok(found);
            }
            found.schedule
        }
        ("greedy", ReduceScatter | Reduce) => {
            let towards = if collective == Reduce { Broadcast } else { AllGather };
            let base = Schedule { collective: towards, ..one() };
            spread(&graph.reversed(), base, rounds, request.seed).schedule.reversed(collective, true)
        }
        ("greedy", AllReduce) => {
            if request.share_bytes / request.unit < request.group(graph).len() as u64 {
                return Err(refuse(method, collective, "the buffer has fewer elements than there are ranks"));
            }
            if request.method == "auto" && n > AUTO {
                return Err(refuse(method, collective, "it is slow on so large a network"));
            }
            composed(graph, request)
        }
        ("greedy", _) => return Err(refuse(method, collective, "every chunk has one destination; see routed")),
        ("trees", AllReduce) if !request.members.is_empty() => {
            return Err(refuse(method, collective, "spanning trees take all NPUs in"));
        }
        ("trees", AllReduce) => {
            let fluid = 1000.0 * limit.cut.demand as f64 / (limit.cut.capacity as f64 * graph.unit_gbs());
            let packing = Packing::new(graph, fluid, request.seed)?;
            packing.schedule(graph, request.share_bytes, request.unit)
        }
        ("arborescences", AllGather | Broadcast) => arborescences(graph, request, one(), &limit.cut)?,
        ("arborescences", ReduceScatter | Reduce) => {
            let towards = if collective == Reduce { Broadcast } else { AllGather };
            let base = Schedule { collective: towards, ..one() };
            arborescences(&graph.reversed(), request, base, &limit.cut)?.reversed(collective, true)
        }
        ("routed", Scatter | AllToAll) => route(graph, one(), request.seed),
        ("routed", Gather) => {
            let base = Schedule { collective: Scatter, ..one() };
            route(&graph.reversed(), base, request.seed).reversed(collective, false)
        }
        ("arborescences", _) => return Err(refuse(method, collective, "they carry one NPU's chunks to all")),
        ("trees", _) => return Err(refuse(method, collective, "spanning trees reduce and broadcast one buffer")),
        _ => return Err(refuse(method, collective, "its chunks have more than one destination; see greedy")),
    };
    // Turned round in time, what shared a port on its way into a switch shares one on its way out.
    let found = if graph.switch().is_some() { arrange(graph, found) } else { found };
    Ok(Synthesis::of(graph, found))
}

/// The search goes by rounds: among all NPUs, or where ports, not ways, are what is scarce.
fn rounded(graph: &Graph, request: &Request) -> bool {
    request.members.is_empty() || graph.switch().is_some()
}

/// Reduce-scatter followed by all-gather, without a pause in between.
fn composed(graph: &Graph, request: &Request) -> Schedule {
    let p = request.group(graph).len() as u32;
    let pieces = (request.share_bytes / request.unit / u64::from(p)).min(u64::from(request.chunks)).max(1) as u32;
    let chunk_bytes = split(request.share_bytes, p * pieces, request.unit);
    let share = request.share_bytes / u64::from(p);
    // One size for all while searching; the true sizes differ by a unit at most.
    let base = |collective| Schedule {
        collective,
        shares: p,
        ..request.base(graph, "greedy", vec![chunk_bytes[0]; pieces as usize])
    };
    let rounds = |graph: &Graph| {
        let limit = || bound(graph, Collective::AllGather, share, 1, 0).rounds(pieces.into());
        rounded(graph, request).then(limit).flatten()
    };
    let forward = spread(graph, base(Collective::AllGather), rounds(graph), request.seed).schedule;
    // Where every link has an equal one the other way, the sums can take the all-gather's ways back.
    let mirrored = graph.partners().filter(|partner| {
        let alike = |(l, &p): (usize, &u32)| {
            let (there, back) = (graph.link(l as u32), graph.link(p));
            (there.rate, there.latency_ps) == (back.rate, back.latency_ps)
        };
        partner.iter().enumerate().all(alike)
    });
    let backward = match mirrored {
        Some(partner) => {
            let turned = |t: &Transfer| Transfer::copy(partner[t.link as usize], t.chunk());
            Schedule { transfers: forward.transfers.iter().map(turned).collect(), ..forward.clone() }
        }
        None => {
            let back = graph.reversed();
            spread(&back, base(Collective::AllGather), rounds(&back), request.seed).schedule
        }
    };
    let mut schedule = backward.reversed(Collective::AllReduce, true);
    schedule.transfers.extend(forward.transfers);
    Schedule { shares: 1, chunk_bytes, ..schedule }
}
