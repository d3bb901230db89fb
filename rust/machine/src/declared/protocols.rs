//! `protocols`: how a communication library sends, as changes of the links between SIPs.

use super::{Bytes, Count, Gbs, Ns, Reader, Real, Value, Word, named, section};
use crate::{Channels, Protocol};
use ahbm_wire::yaml::Tree;
use indexmap::IndexMap;
use serde_json::{Value as Json, json};

section! {
    /// What calls of a size take of the time that the other keys of a protocol say.
    FactorKeys {
        /// Bytes of one rank's array.
        bytes: Bytes = Bytes(1),
        /// The factor, above 0 and up to 1000.
        factor: Real = Real(1.0),
    }
}

/// Most of a factor.
const MOST: f64 = 1e3;

/// Protocols by name, in the order of the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Protocols(pub(crate) IndexMap<String, ProtocolKeys>);

section! {
    /// A protocol of a communication library, such as NCCL's LL, LL128 and Simple: what a message between SIPs costs with
    /// it, and the sizes that the library uses it for.
    ProtocolKeys {
        /// Latency of every message between SIPs besides that of its route, in ns.
        step_ns: Ns = Ns::ps(0),
        /// That of messages between nodes of `topology: nodes`, in ns; `step_ns` where absent.
        nic_step_ns: Option<Ns> = None,
        /// Share of a link's bandwidth that payload gets, above 0 and up to 1.
        efficiency: Real = Real(1.0),
        /// Most payload that a link carries with it.
        max_gbs: Gbs = Gbs::new(f64::INFINITY),
        /// Most payload that a network interface of `topology: nodes` carries with it: the way of a message between nodes
        /// has one, or several where it is striped. Where absent, `max_gbs` bounds that way.
        nic_gbs: Option<Gbs> = None,
        /// Bandwidth of the links with which `max_gbs` was measured. Over other links, the time of a byte differs by what
        /// it takes on the link; where absent, `max_gbs` holds over all links.
        wire_gbs: Option<Gbs> = None,
        /// Bandwidth of the network interfaces with which `nic_gbs`, or else `max_gbs`, was measured on the way between
        /// nodes.
        wire_nic_gbs: Option<Gbs> = None,
        /// Bytes of one rank's array at which half of the bandwidth is reached: n bytes get 1 / (1 + sqrt(ramp_bytes / n))
        /// of it.
        ramp_bytes: Bytes = Bytes(0),
        /// The power with which that share grows, above 0 and up to 1; 0.5 where absent. n bytes get
        /// 1 / (1 + (ramp_bytes / n)^ramp_exponent) of the bandwidth.
        ramp_exponent: Option<Real> = None,
        /// What calls take of the time that steps and bytes say, by their size: between two sizes by the logarithms of both,
        /// and 1 below the first and above the last.
        factors: Vec<FactorKeys> = Vec::new(),
        /// Channels that a call has at most; where absent, its bandwidth depends on none.
        channels: Option<Count<1, 1024>> = None,
        /// Most payload that a channel carries. All channels of a call share its links and its steps.
        channel_gbs: Option<Gbs> = None,
        /// Least bytes of one rank's array for each channel: n bytes have n / channel_bytes of them, one at least. All
        /// where absent.
        channel_bytes: Option<Bytes> = None,
        /// Least bytes of one rank's array that the library uses it for.
        min_bytes: Bytes = Bytes(0),
        /// Most bytes of one rank's array that the library uses it for; all where absent.
        max_bytes: Option<Bytes> = None,
        /// Least bytes of a chunk, which is one rank's array by the number of ranks, that the library uses it for.
        min_chunk_bytes: Bytes = Bytes(0),
        /// Most bytes of such a chunk that the library uses it for; all where absent.
        max_chunk_bytes: Option<Bytes> = None,
        /// The algorithms that the library uses it with; where absent, all that no protocol names.
        algorithms: Option<Vec<Word>> = None,
        /// Bytes in which kernels that take `slice_bytes` pass on what arrives; as each kernel says where absent.
        slice_bytes: Option<Bytes> = None,
        /// Messages a queue holds; as the algorithm says where absent.
        slots: Option<Count<1, 65_536>> = None,
    }
}

impl ProtocolKeys {
    pub(crate) fn protocol(&self) -> Protocol {
        let channels = self.channels.as_ref().zip(self.channel_gbs.as_ref()).map(|(most, gbs)| Channels {
            most: most.0,
            gbs: gbs.gbs(),
            bytes: self.channel_bytes.as_ref().map_or(0, |bytes| bytes.0),
        });
        let together = channels.map_or(f64::INFINITY, |all: Channels| all.together());
        Protocol {
            step_ps: self.step_ns.0,
            nic_step_ps: self.nic_step_ns.map(|step| step.0),
            efficiency: self.efficiency.0,
            max_gbs: together.min(self.max_gbs.gbs()),
            nic_gbs: self.nic_gbs.as_ref().map(Gbs::gbs),
            wire: self.wire_gbs.map(|gbs| gbs.rate),
            nic_wire: self.wire_nic_gbs.map(|gbs| gbs.rate),
            share: 1.0,
            ramp_bytes: self.ramp_bytes.0,
            ramp_exponent: self.ramp_exponent.map_or(0.5, |Real(exponent)| exponent),
            factors: self.factors.iter().map(|each| (each.bytes.0, each.factor.0)).collect(),
            min_bytes: self.min_bytes.0,
            max_bytes: self.max_bytes.map_or(u64::MAX, |bytes| bytes.0),
            min_chunk_bytes: self.min_chunk_bytes.0,
            max_chunk_bytes: self.max_chunk_bytes.map_or(u64::MAX, |bytes| bytes.0),
            algorithms: self.algorithms.iter().flatten().map(|word| word.0.clone()).collect(),
            slice_bytes: self.slice_bytes.map_or(0, |bytes| bytes.0),
            slots: self.slots.map(|slots| slots.0),
            channels,
        }
    }
}

impl Value for Protocols {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        let merge = |protocol: &mut ProtocolKeys, node: &Tree, reader: &mut Reader<'_>| {
            protocol.merge(node, reader);
            let Real(efficiency) = protocol.efficiency;
            if efficiency <= 0.0 || efficiency > 1.0 {
                let message = format!("an efficiency of {efficiency} is out of range: above 0, up to 1");
                reader.report(node.at, "AHBM-T005", message, None);
            }
            if protocol.ramp_exponent.is_some_and(|Real(exponent)| exponent <= 0.0 || exponent > 1.0) {
                reader.report(node.at, "AHBM-T005", "ramp_exponent is out of range: above 0, up to 1", None);
            }
            if protocol.factors.iter().any(|FactorKeys { factor: Real(each), .. }| *each <= 0.0 || *each > MOST) {
                reader.report(node.at, "AHBM-T005", "a factor is out of range: above 0, up to 1000", None);
            }
            let sizes: Vec<u64> = [0].into_iter().chain(protocol.factors.iter().map(|each| each.bytes.0)).collect();
            if !sizes.is_sorted_by(|one, next| one < next) {
                reader.report(node.at, "AHBM-T005", "the bytes of factors do not grow", None);
            }
            // A key whose value is wrong is there, though it has none.
            let (one, other) = (protocol.channels.is_some(), protocol.channel_gbs.is_some());
            if reader.clean() && (one != other || protocol.channel_bytes.is_some() && !one) {
                let message = "channels needs channel_gbs, and channel_gbs and channel_bytes need channels";
                reader.report(node.at, "AHBM-T005", message, None);
            }
            if protocol.max_bytes.is_some_and(|most| most.0 < protocol.min_bytes.0) {
                reader.report(node.at, "AHBM-T005", "max_bytes is less than min_bytes", None);
            }
            if protocol.max_chunk_bytes.is_some_and(|most| most.0 < protocol.min_chunk_bytes.0) {
                reader.report(node.at, "AHBM-T005", "max_chunk_bytes is less than min_chunk_bytes", None);
            }
            if protocol.algorithms.as_ref().is_some_and(Vec::is_empty) {
                let hint = "leave the key out where it is for all".to_owned();
                reader.report(node.at, "AHBM-T005", "algorithms names none", Some(hint));
            }
        };
        named::read(IndexMap::new(), node, reader, "protocol", merge).map(Self)
    }

    fn schema() -> Json {
        json!({"type": ["object", "null"], "additionalProperties": ProtocolKeys::schema()})
    }

    fn canonical(&self, path: &str, out: &mut String) {
        for (name, protocol) in &self.0 {
            protocol.canonical(&format!("{path}.{name}"), out);
        }
    }
}
