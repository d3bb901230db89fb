//! Leaf values: how each is read, bounded, described in the schema and written canonically.

use super::reader::{Reader, Value, shorten};
use crate::{DmaChannels, Ps, Rate, ns_to_ps};
use ahbm_findings::suggestion;
use ahbm_wire::yaml::{Tree, Value as Yaml};
use serde_json::{Value as Json, json};

fn line(path: &str, value: impl std::fmt::Display, out: &mut String) {
    out.push_str(&format!("{path}={value}\n"));
}

fn number(node: &Tree, reader: &mut Reader<'_>, wanted: &str) -> Option<f64> {
    match node.value {
        Yaml::Number(number) => Some(number),
        _ => {
            reader.wrong_kind(node, wanted);
            None
        }
    }
}

fn out_of_range<T>(node: &Tree, reader: &mut Reader<'_>, number: f64, range: &str) -> Option<T> {
    reader.report(node.at, "AHBM-T005", format!("{number} is out of range: {range}"), None);
    None
}

/// A duration in nanoseconds, kept as picoseconds; at most one second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ns(pub(crate) Ps);

const MAX_NS: f64 = 1e9;

impl Ns {
    /// From a literal default.
    pub(crate) const fn ps(ps: Ps) -> Self {
        Self(ps)
    }
}

impl Value for Ns {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        let ns = number(node, reader, "nanoseconds")?;
        match ns_to_ps(ns).filter(|_| ns <= MAX_NS) {
            Some(ps) => Some(Self(ps)),
            None => out_of_range(node, reader, ns, "nanoseconds are 0 to 1e9"),
        }
    }
    fn schema() -> Json {
        json!({"type": "number", "minimum": 0, "maximum": MAX_NS})
    }
    fn canonical(&self, path: &str, out: &mut String) {
        line(path, format_args!("{}ps", self.0), out);
    }
    fn shown(&self) -> Option<Json> {
        let ns = self.0 as f64 / 1000.0;
        Some(if self.0.is_multiple_of(1000) { json!(self.0 / 1000) } else { json!(ns) })
    }
}

/// A bandwidth in GB/s (1e9 bytes per second); `.inf` is unlimited.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gbs {
    pub(crate) rate: Rate,
    given: f64,
}

/// Below this a 48 GB transfer would not fit 64-bit picoseconds with room for sums.
const MIN_GBS: f64 = 0.001;
const MAX_GBS: f64 = 1e9;

impl Gbs {
    /// From a literal default; anything out of range becomes unlimited.
    pub(crate) fn new(gbs: f64) -> Self {
        Self { rate: Rate::from_gbs(gbs).unwrap_or(Rate::UNLIMITED), given: gbs }
    }

    /// The bandwidth as it was written.
    pub(crate) fn gbs(&self) -> f64 {
        self.given
    }
}

impl Value for Gbs {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        let gbs = number(node, reader, "GB/s or .inf")?;
        match Rate::from_gbs(gbs).filter(|_| gbs == f64::INFINITY || (MIN_GBS..=MAX_GBS).contains(&gbs)) {
            Some(rate) => Some(Self { rate, given: gbs }),
            None => out_of_range(node, reader, gbs, "GB/s are 0.001 to 1e9, or .inf for unlimited"),
        }
    }
    fn schema() -> Json {
        // No maximum: `.inf` is a number to YAML.
        json!({"type": "number", "minimum": MIN_GBS})
    }
    fn canonical(&self, path: &str, out: &mut String) {
        line(path, format_args!("{:?}GB/s", self.given), out);
    }
    fn shown(&self) -> Option<Json> {
        plain(self.given)
    }
}

/// Work per nanosecond; `.inf` costs nothing and becomes `u64::MAX`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PerNs(pub(crate) u64);

const MAX_PER_NS: f64 = 1e12;

impl Value for PerNs {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        let rate = number(node, reader, "a whole number per ns, or .inf")?;
        if rate == f64::INFINITY {
            return Some(Self(u64::MAX));
        }
        if (1.0..=MAX_PER_NS).contains(&rate) && rate.fract() == 0.0 {
            return Some(Self(rate as u64));
        }
        out_of_range(node, reader, rate, "a whole number of 1 to 1e12 per ns, or .inf")
    }
    fn schema() -> Json {
        // Not "integer" and no maximum: `.inf` is a number to YAML.
        json!({"type": "number", "minimum": 1})
    }
    fn canonical(&self, path: &str, out: &mut String) {
        line(path, self.0, out);
    }
    fn shown(&self) -> Option<Json> {
        (self.0 != u64::MAX).then(|| json!(self.0))
    }
}

/// A whole number between `MIN` and `MAX`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count<const MIN: u32, const MAX: u32>(pub(crate) u32);

impl<const MIN: u32, const MAX: u32> Value for Count<MIN, MAX> {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        let count = number(node, reader, "a whole number")?;
        if count.fract() == 0.0 && (f64::from(MIN)..=f64::from(MAX)).contains(&count) {
            return Some(Self(count as u32));
        }
        out_of_range(node, reader, count, &format!("a whole number of {MIN} to {MAX}"))
    }
    fn schema() -> Json {
        json!({"type": "integer", "minimum": MIN, "maximum": MAX})
    }
    fn canonical(&self, path: &str, out: &mut String) {
        line(path, self.0, out);
    }
    fn shown(&self) -> Option<Json> {
        Some(json!(self.0))
    }
}

const PER_LINK: &str = "per_link";
const MAX_CHANNELS: u32 = 64;

impl Value for DmaChannels {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Yaml::Number(_) => Count::<1, MAX_CHANNELS>::read(node, reader).map(|count| Self::Any(count.0)),
            Yaml::Text(text) if text == PER_LINK => Some(Self::PerLink),
            Yaml::Text(text) => {
                let message = format!("unknown name `{}`", shorten(text));
                reader.report(node.at, "AHBM-T006", message, Some(suggestion(text, &[PER_LINK])));
                None
            }
            _ => {
                reader.wrong_kind(node, "a whole number or per_link");
                None
            }
        }
    }
    fn schema() -> Json {
        json!({"anyOf": [Count::<1, MAX_CHANNELS>::schema(), {"const": PER_LINK}]})
    }
    fn canonical(&self, path: &str, out: &mut String) {
        match self {
            Self::Any(count) => line(path, count, out),
            Self::PerLink => line(path, PER_LINK, out),
        }
    }
}

/// A size in bytes, up to 2^53.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes(pub(crate) u64);

const MAX_BYTES: u64 = 1 << 53;

impl Value for Bytes {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        let given = number(node, reader, "a number of bytes")?;
        if given.fract() != 0.0 || !(0.0..=MAX_BYTES as f64).contains(&given) {
            return out_of_range(node, reader, given, "whole bytes are 0 to 2^53");
        }
        Some(Self(given as u64))
    }
    fn schema() -> Json {
        json!({"type": "integer", "minimum": 0, "maximum": MAX_BYTES})
    }
    fn canonical(&self, path: &str, out: &mut String) {
        line(path, self.0, out);
    }
    fn shown(&self) -> Option<Json> {
        Some(json!(self.0))
    }
}

/// A name that the file itself declares elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct Word(pub(crate) String);

impl Value for Word {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Yaml::Text(text) => Some(Self(text.clone())),
            _ => {
                reader.wrong_kind(node, "a name");
                None
            }
        }
    }
    fn schema() -> Json {
        json!({"type": ["string", "null"]})
    }
    fn canonical(&self, path: &str, out: &mut String) {
        line(path, &self.0, out);
    }
}

/// What a number is or where it is from: it changes no time.
#[derive(Debug, Clone)]
pub(crate) struct Told(pub(crate) String);

impl Value for Told {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        Word::read(node, reader).map(|word| Self(word.0))
    }
    fn schema() -> Json {
        Word::schema()
    }
    // The machine is the same, whatever is told of it.
    fn canonical(&self, _: &str, _: &mut String) {}
}

/// A non-negative real number up to 1e6, such as a length or a size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Real(pub(crate) f64);

const MAX_REAL: f64 = 1e6;

impl Value for Real {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        let real = number(node, reader, "a number")?;
        if (0.0..=MAX_REAL).contains(&real) {
            return Some(Self(real));
        }
        out_of_range(node, reader, real, "a number of 0 to 1e6")
    }
    fn schema() -> Json {
        json!({"type": "number", "minimum": 0, "maximum": MAX_REAL})
    }
    fn canonical(&self, path: &str, out: &mut String) {
        line(path, format_args!("{:?}", self.0), out);
    }
    fn shown(&self) -> Option<Json> {
        plain(self.0)
    }
}

/// A real number of either sign, such as a covariance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signed(pub(crate) f64);

impl Value for Signed {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        let real = number(node, reader, "a number")?;
        if real.abs() <= MAX_REAL {
            return Some(Self(real));
        }
        out_of_range(node, reader, real, "a number of -1e6 to 1e6")
    }
    fn schema() -> Json {
        json!({"type": "number", "minimum": -MAX_REAL, "maximum": MAX_REAL})
    }
    fn canonical(&self, path: &str, out: &mut String) {
        line(path, format_args!("{:?}", self.0), out);
    }
}

impl Value for bool {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        match node.value {
            Yaml::Bool(value) => Some(value),
            _ => {
                reader.wrong_kind(node, "true or false");
                None
            }
        }
    }
    fn schema() -> Json {
        json!({"type": "boolean"})
    }
    fn canonical(&self, path: &str, out: &mut String) {
        line(path, self, out);
    }
    fn shown(&self) -> Option<Json> {
        Some(json!(self))
    }
}

impl<T: Value> Value for Option<T> {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        T::read(node, reader).map(Some)
    }
    fn schema() -> Json {
        T::schema()
    }
    fn canonical(&self, path: &str, out: &mut String) {
        if let Some(value) = self {
            value.canonical(path, out);
        }
    }
}

impl<T: Value> Value for Vec<T> {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        let Yaml::List(items) = &node.value else {
            reader.wrong_kind(node, "a list");
            return None;
        };
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            values.extend(reader.within(&index.to_string(), item.at, |reader| T::read(item, reader)));
        }
        // Findings already stand for the items that could not be read.
        Some(values)
    }
    fn schema() -> Json {
        json!({"type": "array", "items": T::schema()})
    }
    fn canonical(&self, path: &str, out: &mut String) {
        for (index, value) in self.iter().enumerate() {
            value.canonical(&format!("{path}.{index}"), out);
        }
    }
}

/// One of a fixed set of names.
pub(crate) trait Names: Sized + Copy + PartialEq + 'static {
    /// Every value with its name.
    const ALL: &'static [(&'static str, Self)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
    }
}

impl<T: Names> Value for T {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        let known: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
        let Yaml::Text(text) = &node.value else {
            reader.wrong_kind(node, &format!("one of {}", known.join(", ")));
            return None;
        };
        let found = Self::ALL.iter().find(|(name, _)| name == text).map(|(_, value)| *value);
        if found.is_none() {
            let message = format!("unknown name `{}`", shorten(text));
            reader.report(node.at, "AHBM-T006", message, Some(suggestion(text, &known)));
        }
        found
    }
    fn schema() -> Json {
        json!({"enum": Self::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>()})
    }
    fn canonical(&self, path: &str, out: &mut String) {
        line(path, self.name(), out);
    }
    fn shown(&self) -> Option<Json> {
        Some(json!(self.name()))
    }
}

/// A number as JSON, whole ones without a point; JSON has no infinity.
fn plain(number: f64) -> Option<Json> {
    if number.is_infinite() {
        None
    } else if number.fract() == 0.0 && number < 1e15 {
        Some(json!(number as u64))
    } else {
        Some(json!(number))
    }
}
