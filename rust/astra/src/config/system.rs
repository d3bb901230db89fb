//! The system file: algorithms, splits, queues, memory, roofline.

use super::keys::{Keys, ignored, wrong};
use ahbm_findings::Diagnostic;
use ahbm_workload::Collective;
use std::path::Path;

/// Most parts that a collective is split into.
const MAX_SPLITS: u64 = 1 << 20;

/// An algorithm that the simulator has built in, for one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Native {
    /// Neighbours of a ring.
    Ring,
    /// Everybody with everybody, as many messages at once as the window; all of them where there is none.
    Direct(Option<u32>),
    /// Distances 1, 2, 4, … with halves, quarters, …
    HalvingDoubling,
    /// Two trees, taken by turns.
    DoubleBinaryTree,
}

/// An algorithm, and whether it takes all dimensions for one (`oneRing`, `oneDirect`, `oneHalvingDoubling`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The algorithm.
    pub native: Native,
    /// True where all dimensions are one.
    pub one: bool,
}

/// What a collective is carried out by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Implementation {
    /// Per dimension; nothing where the file does not say.
    pub native: Option<Vec<Choice>>,
    /// Prefix of an algorithm graph, which goes before.
    pub custom: Option<String>,
}

/// The order of waiting streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Later collectives first.
    Lifo,
    /// Earlier collectives first.
    Fifo,
    /// As the nodes state.
    Explicit,
}

/// A system file.
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    /// Where it was read from.
    pub file: String,
    /// The order of waiting streams.
    pub policy: Policy,
    /// Reduce-scatter before the last dimension and all-gather behind it, instead of an all-reduce in each.
    pub local_bandwidth_aware: bool,
    /// Parts that a collective is split into.
    pub splits: u64,
    /// Streams of a dimension that run at a time, over its queues.
    pub active_chunks: u64,
    /// Delay before each send in ns, where the file states it.
    pub endpoint_delay: Option<u64>,
    /// Bandwidth of the local memory in GB/s (10^9 bytes).
    pub memory_bandwidth: f64,
    /// Peak performance in operations per ns where the roofline is on.
    pub roofline: Option<f64>,
    /// Every node takes the time that it states.
    pub replay_only: bool,
    /// all_reduce, all_gather, reduce_scatter, all_to_all.
    pub implementations: [Implementation; 4],
    /// Path of the file that chooses algorithm graphs by node.
    pub per_node: Option<String>,
}

/// Position of a collective in [`System::implementations`]; nothing for those that the simulator does not carry out.
pub(crate) fn place(collective: Collective) -> Option<usize> {
    match collective {
        Collective::AllReduce => Some(0),
        Collective::AllGather => Some(1),
        Collective::ReduceScatter => Some(2),
        Collective::AllToAll => Some(3),
        _ => None,
    }
}

/// Keys in the order of [`System::implementations`].
const IMPLEMENTATIONS: [&str; 4] = [
    "all-reduce-implementation",
    "all-gather-implementation",
    "reduce-scatter-implementation",
    "all-to-all-implementation",
];

/// Keys that change no number, with the reason.
const WITHOUT_EFFECT: [(&str, &str); 9] = [
    ("trace-enabled", "changes no number"),
    ("track-local-mem", "changes no number"),
    ("local-mem-trace-filename", "changes no number"),
    ("L", "is read with model-shared-bus alone"),
    ("o", "is read with model-shared-bus alone"),
    ("g", "is read with model-shared-bus alone"),
    ("G", "is read with model-shared-bus alone"),
    ("local-reduction-delay", "is read with model-shared-bus alone"),
    ("scheduling-policy", "changes no number: a rank never has two collectives at a time"),
];

/// Reads a system file; adds to `warnings` what has no effect.
pub(super) fn read(path: &Path, warnings: &mut Vec<Diagnostic>) -> Result<System, Diagnostic> {
    let mut keys = Keys::read(path)?;
    let file = keys.file.clone();
    let policy_named = keys.text("scheduling-policy")?;
    let policy = match policy_named.as_deref() {
        // What the simulator does without it is not defined; a rank never has two collectives at a time.
        None | Some("LIFO") => Policy::Lifo,
        Some("FIFO") => Policy::Fifo,
        Some("EXPLICIT") => Policy::Explicit,
        Some(other) => {
            return Err(wrong(&file, "scheduling-policy", format!("{other:?} is none of LIFO, FIFO, EXPLICIT")));
        }
    };
    let local_bandwidth_aware = match keys.text("collective-optimization")?.as_deref() {
        None | Some("baseline") => false,
        Some("localBWAware") => true,
        Some(other) => {
            let what = format!("{other:?} is none of baseline, localBWAware");
            return Err(wrong(&file, "collective-optimization", what));
        }
    };
    let splits = keys.whole("preferred-dataset-splits")?.unwrap_or(0);
    if splits > MAX_SPLITS {
        return Err(wrong(&file, "preferred-dataset-splits", format!("{splits} is above {MAX_SPLITS}")));
    }
    let active_chunks = keys.whole("active-chunks-per-dimension")?.unwrap_or(1);
    let endpoint_delay = keys.whole("endpoint-delay")?;
    let memory_bandwidth = positive(&mut keys, "local-mem-bw")?;
    let peak = positive(&mut keys, "peak-perf")?;
    let roofline = keys.flag("roofline-enabled")?;
    if roofline && (peak == 0.0 || memory_bandwidth == 0.0) {
        return Err(wrong(&file, "roofline-enabled", "needs peak-perf and local-mem-bw above 0"));
    }
    if keys.flag("model-shared-bus")? {
        let what = "model-shared-bus: the LogGP bus is not modelled";
        return Err(Diagnostic::new("AHBM-U235", what).site("reading", file));
    }
    let mut implementations: [Implementation; 4] = Default::default();
    for (key, made) in IMPLEMENTATIONS.iter().zip(&mut implementations) {
        let named = keys.texts(key)?;
        let parsed = named.map(|names| names.iter().map(|name| choice(name)).collect::<Result<Vec<_>, _>>());
        made.native = parsed.transpose().map_err(|what| wrong(&file, key, what))?;
        let key = format!("{key}-custom");
        made.custom = match keys.texts(&key)? {
            None => None,
            Some(mut one) if one.len() == 1 => one.pop(),
            Some(other) => return Err(wrong(&file, &key, format!("has {} prefixes, not one", other.len()))),
        };
    }
    let per_node = keys.text("per-node-custom-implementation")?;
    let replay_only = keys.flag("replay-only")?;
    let mut left = keys.left().1;
    if let Some(policy) = policy_named {
        left.insert("scheduling-policy".to_owned(), policy.into());
    }
    for key in left.keys() {
        let known = WITHOUT_EFFECT.iter().find(|(name, _)| name == key);
        warnings.push(ignored(&file, key, known.map_or("is not read", |(_, why)| why)));
    }
    Ok(System {
        file,
        policy,
        local_bandwidth_aware,
        splits,
        active_chunks,
        endpoint_delay,
        memory_bandwidth,
        roofline: roofline.then_some(peak * 1e12),
        replay_only,
        implementations,
        per_node,
    })
}

fn positive(keys: &mut Keys, key: &str) -> Result<f64, Diagnostic> {
    match keys.number(key)?.unwrap_or(0.0) {
        number if number >= 0.0 => Ok(number),
        number => Err(wrong(&keys.file, key, format!("{number} is below 0"))),
    }
}

/// An algorithm by its name.
fn choice(name: &str) -> Result<Choice, String> {
    let made = |one, native| Ok(Choice { native, one });
    let (one, window) = match name {
        "ring" => return made(false, Native::Ring),
        "oneRing" => return made(true, Native::Ring),
        "halvingDoubling" => return made(false, Native::HalvingDoubling),
        "oneHalvingDoubling" => return made(true, Native::HalvingDoubling),
        "doubleBinaryTree" => return made(false, Native::DoubleBinaryTree),
        _ => match (name.strip_prefix("direct"), name.strip_prefix("oneDirect")) {
            (Some(window), _) => (false, window),
            (None, Some(window)) => (true, window),
            (None, None) => {
                let known = "ring, oneRing, direct, oneDirect, halvingDoubling, oneHalvingDoubling, doubleBinaryTree";
                return Err(format!("{name:?} is none of {known}"));
            }
        },
    };
    match window.parse::<u32>() {
        _ if window.is_empty() => made(one, Native::Direct(None)),
        Ok(window) if window > 0 => made(one, Native::Direct(Some(window))),
        _ => Err(format!("{name:?}: a window is a whole number above 0")),
    }
}
