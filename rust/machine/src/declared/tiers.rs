//! `ipcq.tiers`: the one section whose keys the user names.

use super::reader::shorten;
use super::{Gbs, Ns, Reader, Value, section};
use crate::yaml::Tree;
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

const MAX_TIERS: usize = 64;
const MAX_NAME: usize = 64;

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
        let mut tiers = Self::default();
        for (name, node) in reader.entries(node)? {
            let shown = shorten(name);
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(legal) {
                reader.within(&shown, node.at, |reader| {
                    let message = format!("`{shown}` cannot name a tier");
                    reader.report(node.at, "AHBM-T005", message, Some("use letters, digits, _ and -".to_owned()));
                });
                continue;
            }
            if tiers.0.len() >= MAX_TIERS && !tiers.0.contains_key(name) {
                reader.report(node.at, "AHBM-T002", format!("more than {MAX_TIERS} tiers"), None);
                return None;
            }
            let tier = tiers.0.entry(name.clone()).or_default();
            reader.within(&shown, node.at, |reader| tier.merge(node, reader));
        }
        Some(tiers)
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
