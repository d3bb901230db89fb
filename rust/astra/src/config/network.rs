//! The network file: shape, NPUs, bandwidth and latency per dimension.

use super::keys::{ignored, text, wrong};
use ahbm_findings::Diagnostic;
use ahbm_wire::yaml::{self, Tree, Value};
use std::path::Path;

/// Most NPUs of a network.
const MAX_NPUS: u64 = 1 << 20;
/// Longest latency in ns.
const MAX_LATENCY: f64 = 1e15;

/// How the NPUs of a dimension are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Neighbours, both ways.
    Ring,
    /// All to one switch.
    Switch,
    /// Every pair.
    FullyConnected,
}

/// A dimension of the network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dimension {
    /// How its NPUs are joined.
    pub shape: Shape,
    /// Number of NPUs, at least 2.
    pub npus: u32,
    /// Bandwidth of a link in GB/s, where ASTRA-sim's GB has 2^30 bytes.
    pub bandwidth: f64,
    /// Latency of a link in ns.
    pub latency: f64,
}

impl Dimension {
    /// Bandwidth in bytes per ns.
    pub fn bytes_per_ns(&self) -> f64 {
        self.bandwidth * (1u64 << 30) as f64 / 1e9
    }
}

/// Reads a network file; adds to `warnings` what it does not read.
///
/// # Errors
/// `AHBM-F101` a file that cannot be read, `AHBM-T001` and `AHBM-T002` no YAML, `AHBM-C190` a key that is missing or
/// has an unusable value.
pub(super) fn read(path: &Path, warnings: &mut Vec<Diagnostic>) -> Result<Vec<Dimension>, Diagnostic> {
    let file = path.display().to_string();
    let tree = yaml::parse(&text(path)?, &file)?;
    let Value::Map(keys) = tree.value else { return Err(wrong(&file, "the file", "is no mapping")) };
    let (mut shapes, mut npus, mut bandwidths, mut latencies) = (None, None, None, None);
    for (key, value) in &keys {
        match key.as_str() {
            "topology" => shapes = Some(list(&file, key, value, shape)?),
            "npus_count" => npus = Some(list(&file, key, value, count)?),
            "bandwidth" => bandwidths = Some(list(&file, key, value, |v| number(v, f64::MIN_POSITIVE, 1e12))?),
            "latency" => latencies = Some(list(&file, key, value, |v| number(v, 0.0, MAX_LATENCY))?),
            _ => warnings.push(ignored(&file, key, "is not read")),
        }
    }
    let needed = |key: &str| wrong(&file, key, "is missing");
    let shapes = shapes.ok_or_else(|| needed("topology"))?;
    let npus = npus.ok_or_else(|| needed("npus_count"))?;
    let bandwidths = bandwidths.ok_or_else(|| needed("bandwidth"))?;
    let latencies = latencies.ok_or_else(|| needed("latency"))?;
    for (key, many) in [("npus_count", npus.len()), ("bandwidth", bandwidths.len()), ("latency", latencies.len())] {
        if many != shapes.len() {
            return Err(wrong(&file, key, format!("has {many} entries, topology has {}", shapes.len())));
        }
    }
    if shapes.is_empty() {
        return Err(wrong(&file, "topology", "has no dimension"));
    }
    let world = npus.iter().try_fold(1u64, |world, &npus| world.checked_mul(npus).filter(|&world| world <= MAX_NPUS));
    if world.is_none() {
        return Err(wrong(&file, "npus_count", format!("makes more than {MAX_NPUS} NPUs")));
    }
    let joined = shapes.into_iter().zip(npus).zip(bandwidths.into_iter().zip(latencies));
    let made =
        joined.map(|((shape, npus), (bandwidth, latency))| Dimension { shape, npus: npus as u32, bandwidth, latency });
    Ok(made.collect())
}

fn list<T>(
    file: &str,
    key: &str,
    value: &Tree,
    item: impl Fn(&Value) -> Result<T, String>,
) -> Result<Vec<T>, Diagnostic> {
    let Value::List(items) = &value.value else {
        return Err(wrong(file, key, format!("is {}, no list with an entry per dimension", value.value.kind())));
    };
    items.iter().map(|entry| item(&entry.value).map_err(|how| wrong(file, key, how))).collect()
}

fn shape(value: &Value) -> Result<Shape, String> {
    match value {
        Value::Text(name) if name == "Ring" => Ok(Shape::Ring),
        Value::Text(name) if name == "Switch" => Ok(Shape::Switch),
        Value::Text(name) if name == "FullyConnected" => Ok(Shape::FullyConnected),
        Value::Text(name) => Err(format!("{name:?} is none of Ring, Switch, FullyConnected")),
        other => Err(format!("has {}, where a name belongs", other.kind())),
    }
}

fn count(value: &Value) -> Result<u64, String> {
    match value {
        Value::Number(n) if *n >= 2.0 && *n <= MAX_NPUS as f64 && n.fract() == 0.0 => Ok(*n as u64),
        Value::Number(n) => Err(format!("{n} is no whole number from 2 to {MAX_NPUS}")),
        other => Err(format!("has {}, where a number belongs", other.kind())),
    }
}

fn number(value: &Value, least: f64, most: f64) -> Result<f64, String> {
    match value {
        Value::Number(n) if (least..=most).contains(n) => Ok(*n),
        Value::Number(n) => Err(format!("{n} is out of range")),
        other => Err(format!("has {}, where a number belongs", other.kind())),
    }
}
