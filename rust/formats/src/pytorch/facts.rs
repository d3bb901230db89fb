//! What a trace states about one communication, in the many ways in which versions of PyTorch state it.

use ahbm_workload::Collective;
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// What a communication does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Collective(Collective),
    Send,
    Recv,
    /// Several sends and receives as one.
    Coalesced,
}

/// Statements about one communication; what is not stated is none.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    pub(super) kind: Option<Kind>,
    /// Elements that go in and come out at this rank.
    pub(super) inputs: Option<u64>,
    pub(super) outputs: Option<u64>,
    pub(super) dtype: Option<Box<str>>,
    /// Elements that an all_to_all sends to each rank, and receives from each.
    pub(super) splits: [Option<Box<[u64]>>; 2],
    pub(super) group: Option<Box<str>>,
    /// What the group is for, as the program that made it said.
    pub(super) title: Option<Box<str>>,
    pub(super) group_size: Option<u32>,
    pub(super) ranks: Option<Box<[u32]>>,
    /// Position in the group of the root, or of the other end of a message.
    pub(super) other: Option<u32>,
}

impl Facts {
    /// Takes from another statement what this one lacks.
    pub(super) fn or(mut self, other: &Self) -> Self {
        self.kind = self.kind.or(other.kind);
        // Elements and their type belong together, and so do a group's name and its ranks.
        if self.inputs.is_none() && self.outputs.is_none() {
            (self.inputs, self.outputs) = (other.inputs, other.outputs);
        }
        self.dtype = self.dtype.or_else(|| other.dtype.clone());
        if self.splits == [None, None] {
            self.splits.clone_from(&other.splits);
        }
        if self.group.is_none() {
            self.group.clone_from(&other.group);
            self.ranks = self.ranks.or_else(|| other.ranks.clone());
            self.title = self.title.or_else(|| other.title.clone());
        }
        self.group_size = self.group_size.or(other.group_size);
        self.other = self.other.or(other.other);
        self
    }

    /// Bytes of this rank as [`ahbm_workload::CallSpec`] counts them, in a group of `ranks`; none where the size or the
    /// type is not stated.
    pub(super) fn bytes(&self, collective: Collective, ranks: u64) -> Option<u64> {
        if collective == Collective::Barrier {
            return Some(0);
        }
        let (inputs, outputs) = (self.inputs, self.outputs);
        let elements = match collective {
            // The root's whole buffer; other ranks have no input.
            Collective::Scatter => outputs.and_then(|n| n.checked_mul(ranks)).or(inputs),
            Collective::AllGather => inputs.or_else(|| outputs.map(|n| n / ranks.max(1))),
            Collective::ReduceScatter | Collective::ReduceScatterBlock => {
                inputs.or_else(|| outputs.and_then(|n| n.checked_mul(ranks)))
            }
            _ => inputs.or(outputs),
        }?;
        elements.checked_mul(width(self.dtype.as_deref()?)?)
    }

    /// Bytes of a message.
    pub(super) fn message_bytes(&self) -> Option<u64> {
        let elements = self.inputs.filter(|&n| n > 0).or(self.outputs)?;
        elements.checked_mul(width(self.dtype.as_deref()?)?)
    }
}

/// What a name says: of an operator (`c10d::_allgather_base_`), an annotation (`nccl:all_gather`), a collective
/// (`_reduce_scatter_base`) or a kernel (`ncclDevKernel_AllGather_RING_LL`).
pub(super) fn kind(name: &str) -> Option<Kind> {
    let plain: String = name.chars().filter(|&c| c != '_').map(|c| c.to_ascii_lowercase()).collect();
    let plain = plain.rsplit("::").next().unwrap_or_default();
    let plain = plain.rsplit_once(':').map_or(plain, |(_, plain)| plain);
    let of_kernel = ["kernel", "ccl"].into_iter().filter(|_| is_kernel(plain)).find_map(|word| plain.split_once(word));
    let of_kernel = of_kernel.map(|(_, rest)| rest);
    if of_kernel.is_some_and(|rest| rest.starts_with("sendrecv") || rest.starts_with("generic")) {
        return None;
    }
    let plain = of_kernel.unwrap_or(plain);
    if plain.contains("barrier") {
        return Some(Kind::Collective(Collective::Barrier));
    }
    let known = [
        ("allreduce", Collective::AllReduce),
        ("reducescatter", Collective::ReduceScatter),
        ("allgather", Collective::AllGather),
        ("alltoall", Collective::AllToAll),
        ("broadcast", Collective::Broadcast),
        ("reduce", Collective::Reduce),
        ("gather", Collective::Gather),
        ("scatter", Collective::Scatter),
    ];
    if let Some((_, collective)) = known.iter().find(|(word, _)| plain.starts_with(word)) {
        return Some(Kind::Collective(*collective));
    }
    match plain {
        _ if plain.starts_with("send") => Some(Kind::Send),
        _ if plain.starts_with("recv") => Some(Kind::Recv),
        _ if plain.starts_with("coalesced") => Some(Kind::Coalesced),
        _ => None,
    }
}

/// Whether a kernel, its name in small letters, is one of a library of collectives: of NCCL and RCCL
/// (`ncclDevKernel_Generic`), of MSCCL (`mscclKernel_Sum_half_Simple`), oneCCL, HCCL or XCCL.
pub(super) fn is_kernel(lower: &str) -> bool {
    let of = |library: &str| lower.contains(library);
    (of("nccl") || of("msccl")) && of("kernel") || of("oneccl") || of("hccl") || of("xccl")
}

/// Parts of names, in small letters without underscores, of kernels that write into the memory of other ranks themselves:
/// those of vLLM and SGLang, FlashInfer, TensorRT-LLM, PyTorch's symmetric memory, DeepEP, NVSHMEM, quick reduce.
const DIRECT: [&str; 8] = [
    "crossdevicereduce",
    "oneshotallreduce",
    "twoshotallreduce",
    "allreducefusion",
    "allreduceprototype",
    "multimem",
    "deepep::",
    "nvshmem",
];

/// The kernels among these that communicate and are none of a library of collectives, by their names without arguments.
pub(super) fn communicating<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<Box<str>> {
    let distinct: BTreeSet<&str> = names.collect();
    let direct = distinct.into_iter().filter(|name| {
        let plain: String = name.chars().filter(|&c| c != '_').map(|c| c.to_ascii_lowercase()).collect();
        DIRECT.iter().any(|part| plain.contains(part))
    });
    direct
        .map(|name| {
            let name = name.strip_prefix("void ").unwrap_or(name);
            let plain = name.split(['<', '(']).next().unwrap_or(name);
            plain.chars().take(60).collect::<String>().into()
        })
        .collect()
}

/// Position of the other rank in `nccl:send 0->1` and `nccl:recv 1<-0`.
pub(super) fn other_of(name: &str) -> Option<u32> {
    let (_, other) = name.split_once("->").or_else(|| name.split_once("<-"))?;
    other.trim().parse().ok()
}

/// Elements of the operator's input, by its argument of the dimensions `dims`.
pub(super) fn input_of(operator: &str, dims: &Json) -> Option<u64> {
    let list = dims.as_array()?;
    // Operators with an output of their own state it first.
    let at = match operator.strip_prefix("c10d::") {
        None if operator.contains(':') => return elements(dims).filter(|&n| n > 0),
        None => 0,
        Some(_) => match kind(operator)? {
            Kind::Collective(
                Collective::AllGather
                | Collective::ReduceScatter
                | Collective::AllToAll
                | Collective::Gather
                | Collective::Scatter,
            ) => 1,
            _ => 0,
        },
    };
    elements(list.get(at)?).filter(|&n| n > 0)
}

/// Type of the first argument of a tensor that says one.
pub(super) fn type_of(types: &Json) -> Option<Box<str>> {
    let mut texts = types.as_array()?.iter().filter_map(Json::as_str);
    texts.find_map(|text| width(text).map(|_| text.into()))
}

/// Root or other end in the concrete inputs of an operator of `c10d`, by its schema.
pub(super) fn other_in(operator: &str, concrete: &Json) -> Option<u32> {
    let at = match kind(operator.strip_prefix("c10d::").map(|_| operator)?)? {
        Kind::Send | Kind::Recv | Kind::Collective(Collective::Broadcast) => 2,
        Kind::Collective(Collective::Reduce | Collective::Gather | Collective::Scatter) => 3,
        _ => return None,
    };
    number(concrete.as_array()?.get(at)?)
}

/// Elements of a tensor's dimensions, or of all tensors in a list; none where they overflow.
pub(super) fn elements(dims: &Json) -> Option<u64> {
    let list = dims.as_array()?;
    if !list.is_empty() && list.iter().all(Json::is_number) {
        return list.iter().try_fold(1u64, |product, n| product.checked_mul(n.as_u64()?));
    }
    list.iter().try_fold(0u64, |sum, inner| sum.checked_add(elements(inner)?))
}

/// A whole number, which may stand in a string.
pub(super) fn number<N: TryFrom<u64>>(value: &Json) -> Option<N> {
    let number = match value {
        Json::String(text) => text.trim().parse().ok()?,
        other => other.as_u64()?,
    };
    N::try_from(number).ok()
}

/// A list of numbers, which may stand in a string: `"[0, 1]"`. None where it is cut short with an ellipsis.
pub(super) fn numbers<N: TryFrom<u64>>(value: &Json) -> Option<Vec<N>> {
    match value {
        Json::String(text) => numbers(&serde_json::from_str::<Vec<u64>>(text).ok()?.into()),
        other => other.as_array()?.iter().map(number).collect(),
    }
}

/// The type's name here, as PyTorch spells it in tensors (`c10::Half`, `long int`), and in the facts of a collective (`Half`).
pub(super) fn dtype(name: &str) -> Option<&'static str> {
    known(name)?.1
}

/// Bytes of an element.
fn width(name: &str) -> Option<u64> {
    Some(known(name)?.0)
}

/// Width, and the name of the type that AHBM computes with, where it has it.
fn known(name: &str) -> Option<(u64, Option<&'static str>)> {
    let name = name.trim().to_ascii_lowercase();
    let inner = name.strip_prefix("genericlist[").map_or(&*name, |rest| rest.split([',', ']']).next().unwrap_or(rest));
    let inner = inner.strip_prefix("tensor(").map_or(inner, |rest| rest.trim_end_matches([')', ']']));
    Some(match inner.strip_prefix("c10::").unwrap_or(inner) {
        "float" | "float32" => (4, Some("f32")),
        "half" | "float16" => (2, Some("f16")),
        "bfloat16" => (2, Some("bf16")),
        "double" | "float64" => (8, Some("f64")),
        "long" | "long int" | "long long" | "int64" => (8, Some("i64")),
        "int" | "int32" => (4, Some("i32")),
        "short" | "short int" | "int16" => (2, Some("i16")),
        "char" | "signed char" | "int8" => (1, Some("i8")),
        "byte" | "unsigned char" | "bool" | "uint8" => (1, Some("u8")),
        "uint16" => (2, Some("u16")),
        "uint32" => (4, Some("u32")),
        "uint64" => (8, Some("u64")),
        "complexfloat" | "complex<float>" => (8, None),
        "complexdouble" | "complex<double>" => (16, None),
        "float8_e4m3fn" => (1, Some("f8e4m3")),
        "float8_e5m2" => (1, Some("f8e5m2")),
        other if other.starts_with("float8") => (1, None),
        _ => return None,
    })
}

/// Elements of the chunks, where rows of the first dimension are split so and hold `elements` together.
pub(super) fn split(rows: &Json, elements: u64) -> Option<Box<[u64]>> {
    let rows: Vec<u64> = numbers(rows)?;
    let sum = rows.iter().try_fold(0u64, |sum, &n| sum.checked_add(n)).filter(|&sum| sum > 0)?;
    let part = |&n: &u64| u64::try_from(u128::from(n) * u128::from(elements) / u128::from(sum)).ok();
    rows.iter().map(part).collect()
}
