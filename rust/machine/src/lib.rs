//! The machine: from `topology.yaml` to typed ids, links, routes, neighbour tables and costs.
//!
//! Pure: nothing here runs, reads a clock or keeps state.

mod costs;
mod diagnostic;
mod direction;
mod ids;
mod machine;
mod rate;
mod route;
mod sfr;

pub use costs::{Costs, NetworkModel, Tier};
pub use diagnostic::{Diagnostic, Site};
pub use direction::{Direction, Heading};
pub use ids::{Coord, LinkId, Node, PeId};
pub use machine::Machine;
pub use rate::{Ps, Rate, ns_to_ps};
pub use route::{Hop, Route};
pub use sfr::{Sfr, SipNetwork};
