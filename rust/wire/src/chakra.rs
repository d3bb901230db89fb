//! The messages of an execution trace: field numbers and meanings of Chakra 0.0.4 to 1.0.0.
//!
//! Attributes keep the arm they were written in, so that a trace read and written again is the same to
//! the byte as far as its fields are in ascending order; readers take any integral arm for a number.

mod files;
mod typed;

pub use files::{of_rank, prefix, refuse_foreign, split};

use crate::protobuf::{Malformed, Payload, Reader, Wire, Writer};
use std::sync::Arc;

/// The task of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum NodeKind {
    Metadata,
    MemLoad,
    MemStore,
    Comp,
    Send,
    Recv,
    Collective,
    /// A number the schema does not define (0 included).
    Other(u32),
}

impl NodeKind {
    /// Every kind that the schema names.
    pub const ALL: [NodeKind; 7] =
        [Self::Metadata, Self::MemLoad, Self::MemStore, Self::Comp, Self::Send, Self::Recv, Self::Collective];

    /// From the schema's number.
    pub fn from_number(n: u64) -> Self {
        match n {
            1 => Self::Metadata,
            2 => Self::MemLoad,
            3 => Self::MemStore,
            4 => Self::Comp,
            5 => Self::Send,
            6 => Self::Recv,
            7 => Self::Collective,
            n => Self::Other(u32::try_from(n).unwrap_or(u32::MAX)),
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Metadata => 1,
            Self::MemLoad => 2,
            Self::MemStore => 3,
            Self::Comp => 4,
            Self::Send => 5,
            Self::Recv => 6,
            Self::Collective => 7,
            Self::Other(n) => n,
        }
    }

    /// The schema's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metadata => "METADATA_NODE",
            Self::MemLoad => "MEM_LOAD_NODE",
            Self::MemStore => "MEM_STORE_NODE",
            Self::Comp => "COMP_NODE",
            Self::Send => "COMM_SEND_NODE",
            Self::Recv => "COMM_RECV_NODE",
            Self::Collective => "COMM_COLL_NODE",
            Self::Other(_) => "INVALID_NODE",
        }
    }
}

/// The schema's names of `comm_type` on a collective node.
pub const COLLECTIVES: [&str; 10] = [
    "ALL_REDUCE",
    "REDUCE",
    "ALL_GATHER",
    "GATHER",
    "SCATTER",
    "BROADCAST",
    "ALL_TO_ALL",
    "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK",
    "BARRIER",
];

/// The integral arms of an attribute, by field number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Arm {
    Int32 = 7,
    Int64 = 9,
    Uint32 = 11,
    Uint64 = 13,
    Sint32 = 15,
    Sint64 = 17,
    Fixed32 = 19,
    Fixed64 = 21,
    Sfixed32 = 23,
    Sfixed64 = 25,
    Bool = 27,
}

impl Arm {
    fn of(field: u32) -> Option<Self> {
        Some(match field {
            7 => Self::Int32,
            9 => Self::Int64,
            11 => Self::Uint32,
            13 => Self::Uint64,
            15 => Self::Sint32,
            17 => Self::Sint64,
            19 => Self::Fixed32,
            21 => Self::Fixed64,
            23 => Self::Sfixed32,
            25 => Self::Sfixed64,
            27 => Self::Bool,
            _ => return None,
        })
    }

    fn decode(self, payload: &Payload<'_>) -> Option<i128> {
        let signed = |n: u64| i128::from((n >> 1) as i64 ^ -((n & 1) as i64));
        Some(match (self, payload) {
            (Self::Int32, &Payload::Varint(n)) => (n as i32).into(),
            (Self::Int64, &Payload::Varint(n)) => (n as i64).into(),
            (Self::Uint32, &Payload::Varint(n)) => (n as u32).into(),
            (Self::Uint64, &Payload::Varint(n)) => n.into(),
            (Self::Sint32 | Self::Sint64, &Payload::Varint(n)) => signed(n),
            (Self::Bool, &Payload::Varint(n)) => (n != 0).into(),
            (Self::Fixed32, &Payload::Fixed32(n)) => n.into(),
            (Self::Sfixed32, &Payload::Fixed32(n)) => (n as i32).into(),
            (Self::Fixed64, &Payload::Fixed64(n)) => n.into(),
            (Self::Sfixed64, &Payload::Fixed64(n)) => (n as i64).into(),
            _ => return None,
        })
    }

    /// From the schema's name without `_val`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "uint32" => Self::Uint32,
            "uint64" => Self::Uint64,
            "sint32" => Self::Sint32,
            "sint64" => Self::Sint64,
            "fixed32" => Self::Fixed32,
            "fixed64" => Self::Fixed64,
            "sfixed32" => Self::Sfixed32,
            "sfixed64" => Self::Sfixed64,
            "bool" => Self::Bool,
            _ => return None,
        })
    }

    fn wire(self) -> Wire {
        match self {
            Self::Int32 | Self::Int64 | Self::Uint32 | Self::Uint64 | Self::Bool | Self::Sint32 | Self::Sint64 => {
                Wire::Varint
            }
            Self::Fixed32 | Self::Sfixed32 => Wire::Fixed32,
            Self::Fixed64 | Self::Sfixed64 => Wire::Fixed64,
        }
    }

    /// The bits in the field: negative numbers of the plain arms are sign-extended to 64 bits.
    fn bits(self, n: i128) -> u64 {
        match self {
            Self::Sint32 | Self::Sint64 => ((n as i64) << 1 ^ (n as i64) >> 63) as u64,
            _ => n as u64,
        }
    }

    fn encode(self, n: i128, out: &mut Writer) {
        out.scalar(self as u32, self.wire(), self.bits(n));
    }

    /// A list of such numbers; its field follows that of the single one.
    pub fn list(self, numbers: &[i128]) -> Value {
        let bits: Vec<u64> = numbers.iter().map(|&n| self.bits(n)).collect();
        Value::packed(self as u32 + 1, self.wire(), &bits)
    }
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No arm is set.
    None,
    /// Any integral arm, booleans included.
    Integer(Arm, i128),
    /// `double_val`.
    Double(f64),
    /// `float_val`.
    Float(f32),
    /// `string_val`.
    Text(Box<str>),
    /// `bytes_val` (31) and every list arm, by field number, as encoded.
    Raw(u32, Box<[u8]>),
}

impl Value {
    fn packed(field: u32, wire: Wire, bits: &[u64]) -> Self {
        let mut out = Writer::default();
        out.packed(1, wire, bits);
        Self::Raw(field, out.bytes.into())
    }

    /// `double_list` or `float_list`.
    pub fn floats(numbers: &[f64], double: bool) -> Self {
        if double {
            return Self::packed(4, Wire::Fixed64, &numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
        }
        Self::packed(6, Wire::Fixed32, &numbers.iter().map(|x| u64::from((*x as f32).to_bits())).collect::<Vec<_>>())
    }

    fn integer(&self) -> Option<i128> {
        if let Self::Integer(_, n) = self { Some(*n) } else { None }
    }

    fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// `string_list`.
    pub fn texts(texts: &[&str]) -> Self {
        let mut out = Writer::default();
        texts.iter().for_each(|text| out.message(1, text.as_bytes()));
        Self::Raw(30, out.bytes.into())
    }
}

/// The descriptions of tensors: values, shapes and types.
pub fn tensors(texts: &[String; 3]) -> Box<[u8]> {
    let mut out = Writer::default();
    for (field, text) in (1..).zip(texts).filter(|(_, text)| !text.is_empty()) {
        out.message(field, text.as_bytes());
    }
    out.bytes.into()
}

/// A named value of a node or of the trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// The name; names are the real contract, the schema fixes none.
    pub name: Arc<str>,
    /// The value.
    pub value: Value,
    /// Free text.
    pub doc: Option<Box<str>>,
}

impl Attribute {
    /// An attribute in an integral arm.
    pub fn integer(name: &Arc<str>, arm: Arm, n: impl Into<i128>) -> Self {
        Self { name: Arc::clone(name), value: Value::Integer(arm, n.into()), doc: None }
    }

    /// A text attribute.
    pub fn text(name: &Arc<str>, text: impl Into<Box<str>>) -> Self {
        Self { name: Arc::clone(name), value: Value::Text(text.into()), doc: None }
    }

    /// A list of integers, in `int64_list`.
    pub fn integers(name: &Arc<str>, list: &[i64]) -> Self {
        let value = Arm::Int64.list(&list.iter().map(|&n| n.into()).collect::<Vec<_>>());
        Self { name: Arc::clone(name), value, doc: None }
    }

    /// From the message of an attribute.
    ///
    /// # Errors
    /// A violation of the wire format or of the schema.
    pub fn read(mut r: Reader<'_>, names: &mut Names) -> Result<Self, Malformed> {
        let start = r.at();
        let mut attribute = Self { name: Arc::clone(&names.empty), value: Value::None, doc: None };
        while let Some((field, payload)) = r.field()? {
            match field {
                1 => attribute.name = names.intern(payload.message(&r)?.text()?),
                2 => attribute.doc = Some(payload.message(&r)?.text()?.into()),
                3 | 5 => match payload {
                    Payload::Fixed64(bits) if field == 3 => attribute.value = Value::Double(f64::from_bits(bits)),
                    Payload::Fixed32(bits) if field == 5 => attribute.value = Value::Float(f32::from_bits(bits)),
                    _ => return r.fail("a field of another type than its schema's"),
                },
                29 => attribute.value = Value::Text(payload.message(&r)?.text()?.into()),
                n if Arm::of(n).is_some() => match Arm::of(n).and_then(|arm| Some((arm, arm.decode(&payload)?))) {
                    Some((arm, number)) => attribute.value = Value::Integer(arm, number),
                    None => return r.fail("a field of another type than its schema's"),
                },
                4..=32 => attribute.value = Value::Raw(field, payload.message(&r)?.rest().into()),
                _ => {}
            }
        }
        if attribute.name.is_empty() {
            return Err(Malformed { at: start, what: "an attribute without a name" });
        }
        Ok(attribute)
    }

    /// Appends the field of a node that holds it.
    pub fn append_to(&self, node: &mut Writer) {
        node.nested(10, |out| self.fields(out));
    }

    fn fields(&self, out: &mut Writer) {
        out.message(1, self.name.as_bytes());
        if let Some(doc) = &self.doc {
            out.message(2, doc.as_bytes());
        }
        match &self.value {
            Value::None => {}
            Value::Integer(arm, n) => arm.encode(*n, out),
            Value::Double(x) => out.scalar(3, Wire::Fixed64, x.to_bits()),
            Value::Float(x) => out.scalar(5, Wire::Fixed32, x.to_bits().into()),
            Value::Text(text) => out.message(29, text.as_bytes()),
            Value::Raw(field, bytes) => out.message(*field, bytes),
        }
    }
}

/// The few distinct attribute names of a trace, shared.
#[derive(Debug)]
pub struct Names {
    empty: Arc<str>,
    known: rustc_hash::FxHashSet<Arc<str>>,
}

impl Default for Names {
    fn default() -> Self {
        Self { empty: Arc::from(""), known: Default::default() }
    }
}

impl Names {
    /// The one copy of a name.
    pub fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.known.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = Arc::from(name);
        self.known.insert(Arc::clone(&name));
        name
    }
}

/// One operation of a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Unique within its rank's file.
    pub id: u64,
    /// Name for people.
    pub name: Box<str>,
    /// Its task.
    pub kind: NodeKind,
    /// Nodes that must have finished: order only.
    pub ctrl_deps: Vec<u64>,
    /// Nodes that must have finished: their data is used.
    pub data_deps: Vec<u64>,
    /// Start in whole microseconds.
    pub start_micros: u64,
    /// Duration in whole microseconds.
    pub duration_micros: u64,
    /// Input and output tensor descriptions, as encoded.
    pub tensors: [Option<Box<[u8]>>; 2],
    /// Everything else.
    pub attributes: Vec<Attribute>,
}

impl Node {
    /// A node without dependencies.
    pub fn new(id: u64, name: impl Into<Box<str>>, kind: NodeKind) -> Self {
        Self {
            id,
            name: name.into(),
            kind,
            ctrl_deps: Vec::new(),
            data_deps: Vec::new(),
            start_micros: 0,
            duration_micros: 0,
            tensors: [None, None],
            attributes: Vec::new(),
        }
    }

    /// From the message of a node.
    ///
    /// # Errors
    /// A violation of the wire format or of the schema.
    pub fn read(mut r: Reader<'_>, names: &mut Names) -> Result<Self, Malformed> {
        let mut node = Self::new(0, "", NodeKind::Other(0));
        while let Some((field, payload)) = r.field()? {
            match field {
                1 => node.id = payload.varint(&r)?,
                2 => node.name = payload.message(&r)?.text()?.into(),
                3 => node.kind = NodeKind::from_number(payload.varint(&r)?),
                4 => numbers(payload, &r, &mut node.ctrl_deps)?,
                5 => numbers(payload, &r, &mut node.data_deps)?,
                6 => node.start_micros = payload.varint(&r)?,
                7 => node.duration_micros = payload.varint(&r)?,
                8 | 9 => node.tensors[field as usize - 8] = Some(payload.message(&r)?.rest().into()),
                10 => node.attributes.push(Attribute::read(payload.message(&r)?, names)?),
                _ => {}
            }
        }
        Ok(node)
    }

    /// The message of the node; attributes may be appended.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        self.fields(&mut out);
        out.bytes
    }

    fn fields(&self, out: &mut Writer) {
        let number = |out: &mut Writer, field, n| {
            if n != 0 {
                out.varint(field, n);
            }
        };
        number(out, 1, self.id);
        if !self.name.is_empty() {
            out.message(2, self.name.as_bytes());
        }
        number(out, 3, self.kind.number().into());
        out.packed(4, Wire::Varint, &self.ctrl_deps);
        out.packed(5, Wire::Varint, &self.data_deps);
        number(out, 6, self.start_micros);
        number(out, 7, self.duration_micros);
        for (field, tensors) in (8..).zip(&self.tensors) {
            if let Some(bytes) = tensors {
                out.message(field, bytes);
            }
        }
        self.attributes.iter().for_each(|a| a.append_to(out));
    }

    /// An attribute in any integral arm.
    pub fn integer(&self, name: &str) -> Option<i128> {
        named(&self.attributes, name)?.integer()
    }

    /// A text attribute.
    pub fn text(&self, name: &str) -> Option<&str> {
        named(&self.attributes, name)?.text()
    }

    /// A list of integers, in the list of any arm that is a plain number.
    pub fn integers(&self, name: &str) -> Option<Vec<i64>> {
        integers(&self.attributes, name)
    }

    /// A number in any arm.
    pub fn real(&self, name: &str) -> Option<f64> {
        match *named(&self.attributes, name)? {
            Value::Double(x) => Some(x),
            Value::Float(x) => Some(x.into()),
            Value::Integer(_, n) => Some(n as f64),
            _ => None,
        }
    }

    /// Every dependency, control first.
    pub fn deps(&self) -> impl Iterator<Item = u64> + '_ {
        self.ctrl_deps.iter().chain(&self.data_deps).copied()
    }
}

/// The value of the first attribute of a name.
fn named<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a Value> {
    attributes.iter().find(|a| &*a.name == name).map(|a| &a.value)
}

/// A list of integers among attributes.
fn integers(attributes: &[Attribute], name: &str) -> Option<Vec<i64>> {
    let Value::Raw(field, bytes) = named(attributes, name)? else {
        return None;
    };
    if !matches!(Arm::of(field - 1)?, Arm::Int32 | Arm::Int64 | Arm::Uint32 | Arm::Uint64 | Arm::Bool) {
        return None;
    }
    let mut r = Reader::new(bytes);
    let mut list = Vec::new();
    while let Some((field, payload)) = r.field().ok()? {
        if field == 1 {
            numbers(payload, &r, &mut list).ok()?;
        }
    }
    Some(list.into_iter().map(|n| n as i64).collect())
}

/// A repeated number, packed or not.
fn numbers(payload: Payload<'_>, r: &Reader<'_>, out: &mut Vec<u64>) -> Result<(), Malformed> {
    match payload {
        Payload::Varint(n) => out.push(n),
        Payload::Message(mut inner) => {
            while !inner.is_empty() {
                out.push(inner.varint()?);
            }
        }
        _ => return r.fail("a field of another type than its schema's"),
    }
    Ok(())
}

/// The metadata that stands before the nodes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metadata {
    /// Version text; producers write `0.0.4`, `1.0.0` or nothing.
    pub version: Box<str>,
    /// Everything else.
    pub attributes: Vec<Attribute>,
}

impl Metadata {
    /// From the message of metadata.
    ///
    /// # Errors
    /// A violation of the wire format or of the schema.
    pub fn read(mut r: Reader<'_>, names: &mut Names) -> Result<Self, Malformed> {
        let mut metadata = Self::default();
        while let Some((field, payload)) = r.field()? {
            match field {
                1 => metadata.version = payload.message(&r)?.text()?.into(),
                2 => metadata.attributes.push(Attribute::read(payload.message(&r)?, names)?),
                _ => {}
            }
        }
        Ok(metadata)
    }

    /// The message of the metadata.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        if !self.version.is_empty() {
            out.message(1, self.version.as_bytes());
        }
        self.attributes.iter().for_each(|a| out.nested(2, |out| a.fields(out)));
        out.bytes
    }

    /// A text attribute.
    pub fn text(&self, name: &str) -> Option<&str> {
        named(&self.attributes, name)?.text()
    }

    /// A list of integers, in the list of any arm that is a plain number.
    pub fn integers(&self, name: &str) -> Option<Vec<i64>> {
        integers(&self.attributes, name)
    }

    /// An attribute in any integral arm.
    pub fn integer(&self, name: &str) -> Option<i128> {
        named(&self.attributes, name)?.integer()
    }
}

/// The bytes of one rank's file.
pub fn encode(metadata: &Metadata, nodes: &[Node]) -> Vec<u8> {
    let mut out = Writer::default();
    out.delimited(&metadata.encode());
    nodes.iter().for_each(|node| out.measured(|out| node.fields(out)));
    out.bytes
}
