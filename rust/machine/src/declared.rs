//! The declarations of `topology.yaml`: every key with its type, default and meaning, written once.
//!
//! The one table below is the source of the reader, the defaults, the JSON schema, the suggestions for
//! misspelt keys and the canonical form that is hashed. Bounds of single values live in `value`, rules
//! between values in `validated`.

mod compute;
mod fabric;
mod keys;
mod library;
mod named;
mod protocols;
mod reader;
mod resolved;
mod tiers;
mod value;

pub(crate) use compute::Computing;
pub use compute::{Compute, HostLaw, KernelLaw};
pub(crate) use fabric::{Choose, FabricKeys, FabricKind, RouteKeys};
pub(crate) use keys::{Kind, Nodes, Sips, Topology};
pub(crate) use library::{Checked, LibraryKeys};
pub(crate) use protocols::Protocols;
pub(crate) use reader::{Reader, Value, shorten};
pub(crate) use tiers::Tiers;
pub(crate) use value::{Bytes, Count, Gbs, Names, Ns, PerNs, Real, Signed, Told, Word};

/// Declares a section: a struct with defaults that reads itself key by key.
macro_rules! section {
    ($(#[doc = $about:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $field:ident: $kind:ty = $default:expr,)+ }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone)]
        pub(crate) struct $name { $($(#[doc = $doc])+ pub(crate) $field: $kind,)+ }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $name {
            /// Reads the keys that are given over what is there.
            pub(crate) fn merge(&mut self, node: &ahbm_wire::yaml::Tree, reader: &mut $crate::declared::Reader<'_>) {
                for (key, node) in reader.entries(node).unwrap_or_default() {
                    match key.as_str() {
                        $(stringify!($field) => reader.field(key, node, &mut self.$field),)+
                        _ => reader.unknown_key(key, node.at, &[$(stringify!($field)),+]),
                    }
                }
            }
        }

        impl $crate::declared::Value for $name {
            fn read(node: &ahbm_wire::yaml::Tree, reader: &mut $crate::declared::Reader<'_>) -> Option<Self> {
                let mut section = Self::default();
                section.merge(node, reader);
                Some(section)
            }

            fn schema() -> serde_json::Value {
                let mut keys = serde_json::Map::new();
                $({
                    let default: $kind = $default;
                    keys.insert(stringify!($field).to_owned(), $crate::declared::described(&default, &[$($doc),+]));
                })+
                serde_json::json!({
                    "description": $crate::declared::prose(&[$($about),+]),
                    "type": ["object", "null"], "additionalProperties": false, "properties": keys,
                })
            }

            fn canonical(&self, path: &str, out: &mut String) {
                $(self.$field.canonical(&$crate::declared::join(path, stringify!($field)), out);)+
            }
        }
    };
}
pub(crate) use section;

/// Schema of a key with its documentation and default.
fn described<T: Value>(default: &T, doc: &[&str]) -> serde_json::Value {
    let mut schema = T::schema();
    if let Some(object) = schema.as_object_mut() {
        object.insert("description".to_owned(), prose(doc).into());
        if let Some(shown) = default.shown() {
            object.insert("default".to_owned(), shown);
        }
    }
    schema
}

fn prose(doc: &[&str]) -> String {
    doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
