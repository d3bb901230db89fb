//! The remote memory file.

use super::keys::{Keys, ignored, wrong};
use ahbm_findings::Diagnostic;
use std::path::Path;

/// Who shares a port of the remote memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expansion {
    /// There is none.
    None,
    /// As many NPUs as stated.
    PerNode(u32),
    /// Nobody.
    PerNpu,
    /// All.
    Pool,
}

/// The memory that memory nodes load from and store to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RemoteMemory {
    /// Who shares a port.
    pub expansion: Expansion,
    /// Latency of an access in ns.
    pub latency: u64,
    /// Bandwidth in bytes per ns.
    pub bytes_per_ns: f64,
}

impl RemoteMemory {
    /// Time of an access in ns.
    pub fn access(&self, bytes: u64) -> u64 {
        self.latency.saturating_add((bytes as f64 / self.bytes_per_ns) as u64)
    }
}

/// Reads a remote memory file; adds to `warnings` what it does not read.
pub(super) fn read(path: &Path, warnings: &mut Vec<Diagnostic>) -> Result<RemoteMemory, Diagnostic> {
    let mut keys = Keys::read(path)?;
    let file = keys.file.clone();
    let kind = keys.text("memory-type")?.ok_or_else(|| wrong(&file, "memory-type", "is missing"))?;
    let nodes = keys.whole("num-nodes")?;
    let per_node = keys.whole("num-npus-per-node")?;
    let latency = keys.whole("remote-mem-latency")?.unwrap_or(0);
    let bandwidth = keys.number("remote-mem-bw")?.unwrap_or(0.0);
    let expansion = match kind.as_str() {
        "NO_MEMORY_EXPANSION" => Expansion::None,
        "PER_NPU_MEMORY_EXPANSION" => Expansion::PerNpu,
        "MEMORY_POOL" => Expansion::Pool,
        "PER_NODE_MEMORY_EXPANSION" => match per_node.and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0) {
            Some(npus) if nodes.is_some() => Expansion::PerNode(npus),
            _ => return Err(wrong(&file, "num-nodes, num-npus-per-node", "must be there, and no 0")),
        },
        other => {
            let known = "NO_MEMORY_EXPANSION, PER_NODE_MEMORY_EXPANSION, PER_NPU_MEMORY_EXPANSION, MEMORY_POOL";
            return Err(wrong(&file, "memory-type", format!("{other:?} is none of {known}")));
        }
    };
    if expansion != Expansion::None && bandwidth <= 0.0 {
        return Err(wrong(&file, "remote-mem-bw", "must be there, and above 0"));
    }
    let (file, left) = keys.left();
    warnings.extend(left.keys().map(|key| ignored(&file, key, "is not read")));
    Ok(RemoteMemory { expansion, latency, bytes_per_ns: bandwidth })
}
