//! The machine: from `topology.yaml` to typed ids, links, routes, neighbour tables and costs.
//!
//! Pure: nothing here runs, reads a clock or keeps state. What it promises:
//!
//! 1. A topology is data from a stranger: [`Machine::from_yaml`] bounds size, nesting and counts before it
//!    builds anything, and answers every mistake with a [`Diagnostic`] that has a code, a line and a hint.
//! 2. A [`Machine`] is small whatever its size. Links are numbered by arithmetic and a [`Route`] is computed
//!    when it is asked for, in well under a microsecond.
//! 3. Every direction of an [`Sfr`] leads back: `neighbor(neighbor(at, d))` is `at` with the canonical `d`.
//! 4. The same text gives the same machine, links, routes and [`Machine::hash`] everywhere.
//!
//! Reading order: `declared/keys` (every key of `topology.yaml`), `validated` (rules between keys),
//! `machine` (the result), `cube_links` and `sip_links` (numbering), `routing`, `sfr`.

mod costs;
mod cube_links;
mod custom;
mod declared;
mod diagnostic;
mod direction;
mod dump;
mod faults;
mod ids;
mod machine;
mod overrides;
mod rate;
mod route;
mod routing;
mod schema;
mod sfr;
mod sip_links;
mod svg;
mod validated;
mod yaml;

pub use costs::{Costs, NetworkModel, Tier};
pub use diagnostic::{Diagnostic, Site};
pub use direction::{Direction, Heading};
pub use faults::{FULL_PACE, Jitter};
pub use ids::{Coord, LinkId, Node, PeId};
pub use machine::{CubePort, Machine, SipLink};
pub use rate::{Ps, Rate, ns_to_ps};
pub use route::{Hop, Route};
pub use schema::topology_schema;
pub use sfr::{Sfr, SipNetwork};
