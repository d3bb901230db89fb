//! `ipcq.tiers`: memories that queue slots can live in.

use super::{Gbs, Ns, Reader, Value, named, section};
use ahbm_wire::yaml::Tree;
use indexmap::IndexMap;
use serde_json::{Value as Json, json};

/// Slot tiers by name, built-in ones first.
#[derive(Debug, Clone)]
pub(crate) struct Tiers(pub(crate) IndexMap<String, TierKeys>);

section! {
    /// A memory that queue slots can live in. An access costs setup_ns + bytes / bandwidth + bytes / bank bandwidth.
    TierKeys {
        /// Fixed cost of an access, in ns.
        setup_ns: Ns = Ns::ps(0),
        /// Bandwidth of the memory.
        bandwidth_gbs: Gbs = Gbs::new(f64::INFINITY),
        /// Bandwidth of the hop between PE and bank; unlimited where there is none.
        bank_bandwidth_gbs: Gbs = Gbs::new(f64::INFINITY),
    }
}

impl Default for Tiers {
    fn default() -> Self {
        let tier = |setup_ps, gbs, bank| TierKeys {
            setup_ns: Ns::ps(setup_ps),
            bandwidth_gbs: Gbs::new(gbs),
            bank_bandwidth_gbs: Gbs::new(bank),
        };
        Self(IndexMap::from([
            ("tcm".to_owned(), tier(0, 512.0, f64::INFINITY)),
            ("sram".to_owned(), tier(2_000, 512.0, 128.0)),
            ("hbm".to_owned(), tier(6_000, 256.0, 256.0)),
        ]))
    }
}

impl Value for Tiers {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        named::read(Self::default().0, node, reader, "tier", TierKeys::merge).map(Self)
    }

    fn schema() -> Json {
        let mut builtin = serde_json::Map::new();
        for (name, tier) in Self::default().0 {
            let mut schema = TierKeys::schema();
            let defaults = [
                ("setup_ns", tier.setup_ns.shown()),
                ("bandwidth_gbs", tier.bandwidth_gbs.shown()),
                ("bank_bandwidth_gbs", tier.bank_bandwidth_gbs.shown()),
            ];
            for (key, default) in defaults {
                if let Some(default) = default {
                    schema["properties"][key]["default"] = default;
                }
            }
            builtin.insert(name, schema);
        }
        json!({
            "type": ["object", "null"],
            "properties": builtin,
            "additionalProperties": TierKeys::schema(),
        })
    }

    fn canonical(&self, path: &str, out: &mut String) {
        for (name, tier) in &self.0 {
            tier.canonical(&format!("{path}.{name}"), out);
        }
    }
}
