//! The machine: from `topology.yaml` to typed ids, links, routes, neighbour tables and costs.
//!
//! Pure: nothing here runs, reads a clock or keeps state. The crate promises:
//!
//! 1. A topology is data from a stranger: [`Machine::from_yaml`] bounds size, nesting and counts before it
//!    builds anything, and answers every mistake with a [`Diagnostic`](ahbm_findings::Diagnostic) that has a code, a line and a hint.
//! 2. A [`Machine`] is small whatever its size. Links are numbered by arithmetic and a [`Route`] is computed
//!    when it is asked for, in well under a microsecond.
//! 3. Every direction of an [`Sfr`] leads back: `neighbor(neighbor(at, d))` is `at` with the canonical `d`.
//! 4. The same text gives the same machine, links, routes and [`Machine::hash`] everywhere.
//!
//! ```
//! use ahbm_machine::{Coord, Machine, Node};
//!
//! // Four packages in a ring; what the text leaves out has its default.
//! let text = "system: {sips: {count: 4, topology: ring_1d}}";
//! let machine = Machine::from_yaml(text, "ring.yaml", &[])?;
//! let pe = |sip| machine.pe(Coord { sip, cube: 0, pe: 0 }).map(Node::Pe);
//!
//! let (here, next) = (pe(0).expect("a place"), pe(1).expect("a place"));
//! let route = machine.route(here, next).map_err(|finding| vec![finding])?;
//! let names: Vec<String> = route.hops.iter().map(|hop| machine.link_name(hop.link)).collect();
//! assert!(names.contains(&"sip0->sip1".to_string()));
//! assert!(route.latency_ps() > 0);
//!
//! // A mistake has a code, a place and a hint.
//! let findings = Machine::from_yaml("system: {sips: {count: many}}", "ring.yaml", &[]).unwrap_err();
//! assert!(findings[0].code.starts_with("AHBM-T"));
//! # Ok::<(), Vec<ahbm_findings::Diagnostic>>(())
//! ```
//!
//! Reading order: `declared/keys` (every key of `topology.yaml`), `validated` (rules between keys),
//! `resolve` (the steps between them), `machine` (the result), `cube_links` and `sip_links` (numbering), `protocol` (what a
//! call costs), `calls` (the machine as a call finds it), `routing`, `sfr`.

mod calls;
mod collisions;
mod costs;
mod cube_links;
mod custom;
mod declared;
mod direction;
mod dump;
mod edge;
mod fabric;
mod faults;
mod ids;
mod jitter;
mod machine;
mod overrides;
mod protocol;
mod rate;
mod resolve;
mod roofline;
mod route;
mod routing;
mod schema;
mod sfr;
mod sip_links;
mod svg;
mod symmetry;
mod validated;
mod ways;

pub use calls::Caps;
pub use collisions::Collision;
pub use costs::{Band, Costs, DmaChannels, Library, NetworkModel, Tier};
pub use declared::{Compute, HostLaw, KernelLaw};
pub use direction::{Direction, Heading};
pub use faults::{FULL_PACE, LinkChange};
pub use ids::{Coord, LinkId, Node, PeId};
pub use jitter::Jitter;
pub use machine::{CubePort, Machine, Ports, SipLink, Switch};
pub use protocol::{CallCosts, Channels, Protocol, Ways};
pub use rate::{Ps, Rate, ns_to_ps};
pub use roofline::Roofline;
pub use route::{Hop, Route};
pub use schema::topology_schema;
pub use sfr::{Sfr, SipNetwork};
