//! The machine: from `topology.yaml` to typed ids, links, routes, neighbour tables and costs.
//!
//! Pure: nothing here runs, reads a clock or keeps state.

mod costs;
mod cube_links;
mod custom;
mod declared;
mod diagnostic;
mod direction;
mod dump;
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
pub use ids::{Coord, LinkId, Node, PeId};
pub use machine::{Machine, SipLink};
pub use rate::{Ps, Rate, ns_to_ps};
pub use route::{Hop, Route};
pub use schema::topology_schema;
pub use sfr::{Sfr, SipNetwork};
