//! An ASTRA-sim set-up: its files, read and judged whole before anything runs.

mod keys;
mod memory;
mod network;
mod system;

pub use memory::{Expansion, RemoteMemory};
pub use network::{Dimension, Shape};
pub use system::{Choice, Implementation, Native, Policy, System};

pub(crate) use system::place;

use ahbm_findings::Diagnostic;
use ahbm_formats::chakra::{ReadOptions, read_ranks, read_workload};
use ahbm_wire::yaml::{self, Value};
use ahbm_workload::{Groups, Workload};
use indexmap::IndexMap;
use keys::{Keys, text, wrong};
use rustc_hash::FxBuildHasher;
use std::path::{Path, PathBuf};

/// How messages share links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// They do not: each takes its delay.
    CongestionUnaware,
    /// One message at a time per link, in the order of arrival, stored and forwarded whole.
    CongestionAware,
}

/// The files of a set-up, as ASTRA-sim's command line names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// Prefix of `PREFIX.<rank>.et`.
    pub workload: PathBuf,
    /// System JSON.
    pub system: PathBuf,
    /// Network YAML.
    pub network: PathBuf,
    /// Remote memory JSON.
    pub memory: PathBuf,
    /// Process groups JSON, where there is one.
    pub groups: Option<PathBuf>,
}

/// Options of ASTRA-sim's command line that change its numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flags {
    /// How messages share links.
    pub backend: Backend,
    /// Queues of a dimension, at least 1.
    pub queues: u32,
    /// Factor of the endpoint delay.
    pub injection_scale: f64,
    /// A message of 8192 bytes asks for each message.
    pub rendezvous: bool,
}

impl Default for Flags {
    fn default() -> Self {
        Self { backend: Backend::CongestionUnaware, queues: 1, injection_scale: 1.0, rendezvous: false }
    }
}

/// Process groups of a set-up: the number that ASTRA-sim knows a group by, by name.
pub type GroupNumbers = IndexMap<String, u64, FxBuildHasher>;

/// A set-up that has been read.
#[derive(Debug)]
pub struct Setup {
    /// Dimensions of the network; dimension 0 varies fastest in a rank's number.
    pub network: Vec<Dimension>,
    /// System.
    pub system: System,
    /// Remote memory.
    pub memory: RemoteMemory,
    /// Numbers of the groups of the groups file.
    pub groups: GroupNumbers,
    /// Algorithm graphs, each once; ranks are positions in a group.
    pub algorithms: Vec<Workload>,
    /// Per collective of [`System::implementations`], its position in `algorithms`.
    pub custom: [Option<u32>; 4],
    /// Algorithm graphs by the id of the node, positions in `algorithms`.
    pub per_node: IndexMap<u64, u32, FxBuildHasher>,
    /// What every rank does.
    pub job: Workload,
    /// What has no effect.
    pub warnings: Vec<Diagnostic>,
}

impl Setup {
    /// Reads a set-up. Files that a system file names are looked for in the working directory, then in the folders
    /// above the system file, nearest first.
    ///
    /// # Errors
    /// `AHBM-F101` a file that cannot be read, `AHBM-T001` and `AHBM-T002` no YAML, `AHBM-C190` a key that is missing
    /// or has an unusable value, `AHBM-U235` a model that is not here, and what
    /// [`ahbm_formats::chakra::read_workload`] reports.
    pub fn read(files: &Files, options: &ReadOptions) -> Result<Self, Vec<Diagnostic>> {
        let mut warnings = Vec::new();
        let network = network::read(&files.network, &mut warnings).map_err(one)?;
        let system = system::read(&files.system, &mut warnings).map_err(one)?;
        let memory = memory::read(&files.memory, &mut warnings).map_err(one)?;
        for (made, key) in
            system.implementations.iter().zip(["all-reduce", "all-gather", "reduce-scatter", "all-to-all"])
        {
            if let Some(list) = made.native.as_ref().filter(|list| list.len() > network.len()) {
                let key = format!("{key}-implementation");
                let what = format!("has {} entries, the network {} dimensions", list.len(), network.len());
                return Err(one(wrong(&system.file, &key, what)));
            }
        }
        let (named, groups) = match &files.groups {
            Some(path) => groups(path).map_err(one)?,
            None => Default::default(),
        };
        let mut algorithms: IndexMap<PathBuf, Workload, FxBuildHasher> = IndexMap::default();
        let mut graph = |prefix: &str, what: &str| -> Result<u32, Vec<Diagnostic>> {
            let path = found(prefix, &files.system, ".0.et");
            let entry = algorithms.entry(path);
            let at = entry.index() as u32;
            if let indexmap::map::Entry::Vacant(entry) = entry {
                let read = read_workload(entry.key(), options, Groups::default());
                let read = read.map_err(|mut findings| {
                    if let Some(first) = findings.first_mut() {
                        first.message = format!("{what}: {}", first.message);
                    }
                    findings
                })?;
                entry.insert(read);
            }
            Ok(at)
        };
        let mut custom = [None; 4];
        for (at, made) in custom.iter_mut().zip(&system.implementations) {
            *at = made.custom.as_deref().map(|prefix| graph(prefix, "algorithm graph")).transpose()?;
        }
        let mut per_node = IndexMap::default();
        if let Some(path) = &system.per_node {
            for (node, prefix) in chosen(&found(path, &files.system, "")).map_err(one)? {
                per_node.insert(node, graph(&prefix, &format!("algorithm graph of node {node}"))?);
            }
        }
        let algorithms = algorithms.into_values().collect();
        let ranks = network.iter().map(|dimension| dimension.npus).product();
        let job = read_ranks(&files.workload, ranks, options, named)?;
        warnings.extend(job.notes.iter().cloned());
        Ok(Self { network, system, memory, groups, algorithms, custom, per_node, job, warnings })
    }

    /// Number of ranks.
    pub fn world(&self) -> u32 {
        self.job.ranks.len() as u32
    }

    /// The number of a group, which is part of the tags of its messages; 0 for that of all ranks.
    pub(crate) fn group_number(&self, name: &str) -> u64 {
        self.groups.get(name).copied().or_else(|| name.parse().ok()).unwrap_or(0)
    }
}

/// The file that a system file names: as it is, else below a folder above the system file.
fn found(path: &str, system: &Path, ending: &str) -> PathBuf {
    let there = |base: &Path| {
        let mut name = base.join(path).into_os_string();
        name.push(ending);
        Path::new(&name).exists()
    };
    let folders = [Path::new("")].into_iter().chain(system.ancestors().skip(1));
    folders.map(Path::to_path_buf).find(|folder| there(folder)).unwrap_or_default().join(path)
}

/// Reads a groups file: rank lists by name, and the number of each.
fn groups(path: &Path) -> Result<(Groups, GroupNumbers), Diagnostic> {
    let (file, entries) = Keys::read(path)?.left();
    let mut numbers = GroupNumbers::default();
    let mut named = Groups::default();
    for (at, (name, value)) in entries.into_iter().enumerate() {
        let ranks = value.as_array().and_then(|list| {
            list.iter().map(|rank| rank.as_u64().and_then(|n| u32::try_from(n).ok())).collect::<Option<Vec<u32>>>()
        });
        let Some(ranks) = ranks else { return Err(wrong(&file, &name, "is no list of ranks")) };
        let number = match name.parse::<i64>() {
            Ok(number) if number > 0 => number as u64,
            Ok(number) => return Err(wrong(&file, &name, format!("{number} names the group of all ranks"))),
            // A name that is no number stops ASTRA-sim; any number that no other group has does.
            Err(_) => (1 << 20) + at as u64,
        };
        numbers.insert(name.clone(), number);
        named.insert(name, ranks);
    }
    Ok((named, numbers))
}

/// Reads the file that chooses algorithm graphs by node.
fn chosen(path: &Path) -> Result<Vec<(u64, String)>, Diagnostic> {
    let file = path.display().to_string();
    let Value::Map(entries) = yaml::parse(&text(path)?, &file)?.value else {
        return Err(wrong(&file, "the file", "is no mapping of node ids to prefixes"));
    };
    let entry = |(key, tree): (String, yaml::Tree)| match (key.parse(), tree.value) {
        (Ok(node), Value::Text(prefix)) => Ok((node, prefix)),
        _ => Err(wrong(&file, &key, "is no node id with a prefix")),
    };
    entries.into_iter().map(entry).collect()
}

/// A finding that stands alone.
pub(crate) fn one(finding: Diagnostic) -> Vec<Diagnostic> {
    vec![finding]
}
