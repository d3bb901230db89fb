//! `compute`: what the kernels of a training job take by their class and dimensions, and what their host takes.
//!
//! A law has its numbers here: a section of its own, by class of kernels, whose keys are plain numbers with defaults. A key
//! that is added to the table below is read, described in the schema, hashed, and in [`Compute`].

use super::{Count, Reader, Real, Told, Value, section};
use ahbm_wire::yaml::{Tree, Value as Yaml};
use serde_json::{Value as Json, json};

/// Declares `compute`: per section its keys with their defaults. Makes of each the keys as they are read, and the numbers
/// that the emulator gets.
macro_rules! compute {
    ($($(#[doc = $about:literal])+ $section:ident: $keys:ident => $name:ident {
        $($(#[doc = $doc:literal])+ $field:ident = $default:expr,)+
    })+) => {
        section! {
            /// What the kernels of a training job take by their class and dimensions, and what their host takes to issue
            /// them. Where absent, a kernel takes what `pe.roofline` says, and its host nothing. `units`, `clock_mhz` and
            /// `l2_mib` are those of the data sheet; all other keys have the values that were fitted to an H200.
            ComputeKeys {
                /// Where the numbers are from.
                source: Option<Told> = None,
                /// How they were fitted, as `ahbm calibrate` writes it. It changes no time.
                fit: Option<Unread> = None,
                /// Units that each run blocks of a kernel: SMs, CUs.
                units: Option<Count<1, 65_536>> = None,
                /// Their clock under load, in MHz.
                clock_mhz: Option<Real> = None,
                /// The cache that all units share, in units of 2^20 bytes.
                l2_mib: Option<Real> = None,
                $($(#[doc = $about])+ $section: $keys = $keys::default(),)+
            }
        }

        /// What the kernels of a training job take by their class and dimensions, and what their host takes.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct Compute {
            /// Units that each run blocks of a kernel: SMs, CUs.
            pub units: f64,
            /// Their clock under load, in MHz.
            pub clock_mhz: f64,
            /// The cache that all units share, in units of 2^20 bytes.
            pub l2_mib: f64,
            $($(#[doc = $about])+ pub $section: $name,)+
        }

        impl ComputeKeys {
            /// The numbers; the data sheet has been checked to be there.
            pub(crate) fn compute(&self) -> Compute {
                Compute {
                    units: self.units.map_or(0.0, |units| f64::from(units.0)),
                    clock_mhz: self.clock_mhz.map_or(0.0, |mhz| mhz.0),
                    l2_mib: self.l2_mib.map_or(0.0, |mib| mib.0),
                    $($section: $name { $($field: self.$section.$field.0,)+ },)+
                }
            }
        }

        impl Compute {
            /// Every number by its path below `compute`.
            pub fn values(&self) -> Vec<(&'static str, f64)> {
                vec![
                    ("units", self.units),
                    ("clock_mhz", self.clock_mhz),
                    ("l2_mib", self.l2_mib),
                    $($((concat!(stringify!($section), ".", stringify!($field)), self.$section.$field),)+)+
                ]
            }
        }

        $(
            section! {
                $(#[doc = $about])+
                $keys { $($(#[doc = $doc])+ $field: Real = Real($default),)+ }
            }

            $(#[doc = $about])+
            #[derive(Debug, Clone, Copy, PartialEq)]
            pub struct $name { $($(#[doc = $doc])+ pub $field: f64,)+ }
        )+
    };
}

compute! {
    /// What every kernel takes beside its work.
    kernel: KernelKeys => KernelLaw {
        /// From its start to its first work and from its last to its end, in ns.
        start_ns = 1500.0,
    }
    /// What the host takes to issue what the device does, through PyTorch's eager mode. The defaults were fitted to steps on
    /// an H200 beside a Xeon.
    host: HostKeys => HostLaw {
        /// An operation of the device, through the dispatcher and with the memory of its results, in ns.
        operation_ns = 5700.0,
        /// A kernel, from the code of its operation to the driver, in ns.
        launch_ns = 9000.0,
        /// An operation that starts no kernel, such as a view, in ns.
        view_ns = 2900.0,
        /// What lies before an operation that Python asks for: modules, Python itself, autograd's part in forward; in ns.
        python_ns = 6200.0,
        /// A node of autograd in backward, beside its operations, in ns.
        node_ns = 12800.0,
        /// A call of backward, which wakes autograd's thread and the caller again, in ns.
        backward_ns = 120000.0,
        /// A step of an optimizer, in ns.
        optimizer_ns = 76000.0,
        /// A parameter in a step of an optimizer, in ns.
        parameter_ns = 1800.0,
        /// A tensor of a list that an operation is given, in ns.
        tensor_ns = 410.0,
        /// An operation on the host's own tensors, in ns.
        own_ns = 3400.0,
        /// To wait for the device, beside the wait itself, in ns.
        synchronize_ns = 9700.0,
        /// The choice of a kernel for a product, in ns.
        product_ns = 6700.0,
        /// The plan of a convolution or of an attention, for a result or for a gradient, in ns.
        plan_ns = 36000.0,
        /// A normalization, beside an operation of one result, in ns.
        norm_ns = 11000.0,
        /// A call of a collective, in ns.
        collective_ns = 30000.0,
        /// The rate at which it copies pageable memory to where the device reads it, in GB/s.
        staging_gbs = 12.0,
    }
}

/// `compute` with all that it needs.
#[derive(Debug, Clone)]
pub(crate) struct Computing(pub(crate) ComputeKeys);

impl Value for Computing {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        let found = ComputeKeys::read(node, reader)?;
        let positive = |given: Option<Real>| given.is_some_and(|number| number.0 > 0.0);
        let lacking: Vec<&str> = [
            ("units", found.units.is_some()),
            ("clock_mhz", positive(found.clock_mhz)),
            ("l2_mib", positive(found.l2_mib)),
        ]
        .into_iter()
        .filter_map(|(key, there)| (!there).then_some(key))
        .collect();
        if !lacking.is_empty() && reader.clean() {
            let hint = "the data sheet of the accelerator says them";
            let message = format!("{} must be there and positive", lacking.join(", "));
            reader.report(node.at, "AHBM-T005", message, Some(hint.to_owned()));
        }
        Some(Self(found))
    }

    fn schema() -> Json {
        let mut schema = ComputeKeys::schema();
        schema["required"] = json!(["units", "clock_mhz", "l2_mib"]);
        schema
    }

    fn canonical(&self, path: &str, out: &mut String) {
        self.0.canonical(path, out);
    }
}

/// What is kept as it is, for others to read: it changes no time.
#[derive(Debug, Clone)]
pub(crate) struct Unread(pub(crate) Json);

impl Value for Unread {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        reader.entries(node)?;
        Some(Self(json_of(node)))
    }

    fn schema() -> Json {
        json!({"type": ["object", "null"]})
    }

    // The machine is the same, however its numbers were found.
    fn canonical(&self, _: &str, _: &mut String) {}
}

fn json_of(node: &Tree) -> Json {
    match &node.value {
        Yaml::Null => Json::Null,
        Yaml::Bool(flag) => json!(flag),
        Yaml::Number(number) => json!(number),
        Yaml::Text(text) => json!(text),
        Yaml::List(items) => items.iter().map(json_of).collect(),
        Yaml::Map(entries) => Json::Object(entries.iter().map(|(key, node)| (key.clone(), json_of(node))).collect()),
    }
}
