//! The keys of networks with equal ways: switches of several tiers between nodes, and which way a message takes.

use super::{Count, Gbs, Names, Ns, Real, Word, section};

section! {
    /// Switches of several tiers between the nodes, instead of one spine. Every interface leads to one of them.
    FabricKeys {
        /// How interfaces and switches are joined: `clos`, all interfaces of a node to one leaf; `rails`, the interface of the
        /// same number of several nodes to one leaf; `dragonfly`, groups of routers that are all joined.
        kind: FabricKind = FabricKind::Clos,
        /// Tiers of switches of `clos` and `rails`: leaves; leaves and spines; leaves and spines of a pod, and cores.
        tiers: Option<Count<1, 3>> = None,
        /// Nodes of a leaf, of as many leaves as a node has interfaces with `rails`, of a router with `dragonfly`; with one
        /// tier all, else 4 where absent.
        nodes_per_leaf: Option<Count<1, 65_536>> = None,
        /// Nodes of a pod of three tiers; 4 times `nodes_per_leaf` where absent.
        nodes_per_pod: Option<Count<1, 65_536>> = None,
        /// Spines, with three tiers those of a pod; as many as `oversubscription` asks for where absent.
        spines: Option<Count<1, 4_096>> = None,
        /// Cores of three tiers, a multiple of `spines`; where absent, a spine has as many links up as down.
        cores: Option<Count<1, 65_536>> = None,
        /// Links side by side between a leaf and a spine, or between two groups of a dragonfly; 1 where absent.
        links: Option<Count<1, 1_024>> = None,
        /// Bandwidth of a leaf's interfaces together over that of its links to spines; 1 where neither it nor `spines` is given.
        oversubscription: Option<Real> = None,
        /// Bandwidth of a link between switches, each way; what `spines` and `oversubscription` leave, else `nodes.nic_gbs`,
        /// where absent.
        bandwidth_gbs: Option<Gbs> = None,
        /// Latency of a link between switches, in ns; 0 where absent.
        latency_ns: Option<Ns> = None,
        /// Latency through every switch, in ns; `nodes.spine_ns` where absent.
        switch_ns: Option<Ns> = None,
        /// Routers of a group of a dragonfly; 4 where absent.
        routers: Option<Count<1, 4_096>> = None,
    }
}

section! {
    /// Which of several equal ways a message takes. Ways are shortest by latency, then by links.
    RouteKeys {
        /// `first`; `ecmp`, by a hash of the SIPs at both ends; `rails`, by the place of the destination's interface, what
        /// goes to another rail first crossing its node. With a fabric `ecmp` where absent, else `first`.
        choose: Option<Choose> = None,
        /// Chooses among the hashes of `ecmp`; 0 where absent.
        seed: Option<Count<0, 4_294_967_295>> = None,
        /// Ways that are given.
        given: Vec<GivenWay> = Vec::new(),
    }
}

section! {
    /// The way of what one SIP sends to another.
    GivenWay {
        /// SIP that sends.
        from: Option<Count<0, 131_071>> = None,
        /// SIP that receives.
        to: Option<Count<0, 131_071>> = None,
        /// What lies between, by the names of links on reports, as `leaf0` and `spine1`.
        by: Vec<Word> = Vec::new(),
    }
}

/// `system.sips.nodes.fabric.kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FabricKind {
    Clos,
    Rails,
    Dragonfly,
}

impl Names for FabricKind {
    const ALL: &'static [(&'static str, Self)] =
        &[("clos", Self::Clos), ("rails", Self::Rails), ("dragonfly", Self::Dragonfly)];
}

/// `system.sips.routes.choose`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choose {
    First,
    Ecmp,
    Rails,
}

impl Names for Choose {
    const ALL: &'static [(&'static str, Self)] =
        &[("first", Self::First), ("ecmp", Self::Ecmp), ("rails", Self::Rails)];
}
