//! The keys of `topology.yaml`.

use super::{
    Checked, Computing, Count, FabricKeys, Gbs, LibraryKeys, Names, Ns, PerNs, Protocols, Real, RouteKeys, Tiers, Told,
    Word, section,
};
use crate::{DmaChannels, NetworkModel};

section! {
    /// A machine: SIPs joined by a network, each a mesh of cubes, each cube with PEs. Every key is optional;
    /// an empty file is the default machine.
    Topology {
        /// The SIPs and the network between them.
        system: System = System::default(),
        /// Inside a SIP: the cube mesh and the I/O chiplet.
        sip: Sip = Sip::default(),
        /// Inside a cube: PEs, memory, routers, UCIe ports.
        cube: Cube = Cube::default(),
        /// Inside a PE: engines and memory ports.
        pe: Pe = Pe::default(),
        /// Inter-PE communication queues.
        ipcq: Ipcq = Ipcq::default(),
        /// What is wrong with the machine.
        faults: Faults = Faults::default(),
        /// What the host's start of a collective takes.
        launch: Launch = Launch::default(),
        /// The protocols of a communication library, by name.
        protocols: Protocols = Protocols::default(),
        /// The protocol that all runs use; where absent, each takes the quickest of those that its size allows.
        protocol: Option<Word> = None,
        /// The algorithms that the communication library of the machine runs, by collective.
        library: LibraryKeys = LibraryKeys::default(),
        /// How the machine was fitted to measured tables; written by `ahbm calibrate`. It changes no time.
        calibration: Option<Checked> = None,
        /// What the kernels of a training job take by their class and dimensions, and what their host takes.
        compute: Option<Computing> = None,
        /// The machine that this file stands on, by its name or its path: the file says what differs alone.
        base: Option<Told> = None,
        /// What was assumed where the file was made from another one, for the notes of reports. It changes no time.
        assumed: Vec<Told> = Vec::new(),
    }
}

section! {
    /// What the host's start of a collective takes: its PEs start then, and its time counts it. Not in jobs, whose hosts
    /// start collectives while others run.
    Launch {
        /// Of every collective, in ns; 0 where absent.
        overhead_ns: Option<Ns> = None,
        /// For each SIP of the machine besides, in ns; 0 where absent.
        per_rank_ns: Option<Ns> = None,
    }
}

section! {
    /// What is wrong with the machine.
    Faults {
        /// Slow, late and dead links.
        links: Vec<LinkFault> = Vec::new(),
        /// Slow PEs.
        stragglers: Vec<Straggler> = Vec::new(),
        /// Random delays, the same for the same seed.
        jitter: Jitter = Jitter::default(),
    }
}

section! {
    /// A slow, late or dead link.
    LinkFault {
        /// SIP whose cubes `from` and `to` are; without it they are SIPs (the switch counts as one more).
        sip: Option<Count<0, 65_535>> = None,
        /// SIP, or cube of `sip`, that the link leaves.
        from: Option<Count<0, 65_536>> = None,
        /// SIP, or neighbouring cube of `sip`, that the link enters; between cubes, all connections of the port.
        to: Option<Count<0, 65_536>> = None,
        /// Divides the bandwidth.
        slowdown: Real = Real(1.0),
        /// Latency on top of the link's own, in ns.
        extra_latency_ns: Ns = Ns::ps(0),
        /// Carries nothing; messages go round it where they can.
        dead: bool = false,
        /// Also the opposite link.
        bidirectional: bool = true,
    }
}

section! {
    /// A slow PE.
    Straggler {
        /// SIP it is in.
        sip: Count<0, 65_535> = Count(0),
        /// Cube it is in.
        cube: Count<0, 65_535> = Count(0),
        /// Its number in the cube.
        pe: Count<0, 65_535> = Count(0),
        /// Multiplies the time of its dispatch and math.
        slowdown: Real = Real(2.0),
    }
}

section! {
    /// Random delays, the same for the same seed.
    Jitter {
        /// Chooses among the delays.
        seed: Count<0, 4_294_967_295> = Count(0),
        /// Every message arrives up to so much later, in ns.
        latency_ns: Ns = Ns::ps(0),
        /// Every PE starts up to so much later than the launch, in ns.
        skew_ns: Ns = Ns::ps(0),
    }
}

section! {
    /// The SIPs and the network between them.
    System {
        /// Signal delay per millimetre of wire, in ns.
        ns_per_mm: Real = Real(0.01),
        /// How the network is timed.
        network_model: NetworkModel = NetworkModel::CutThrough,
        /// Unit in which long messages pipeline over hops, in bytes.
        flit_bytes: Count<16, 65_536> = Count(256),
        /// Number of SIPs and how they are joined.
        sips: Sips = Sips::default(),
    }
}

section! {
    /// Number of SIPs and how they are joined.
    Sips {
        /// Number of SIPs (ranks).
        count: Count<1, 1_048_576> = Count(2),
        /// Network between the SIPs.
        topology: Kind = Kind::Ring1d,
        /// Grid extent along E/W. Without w, h, d the count must be a perfect square (cube in three dimensions).
        w: Option<Count<1, 65_536>> = None,
        /// Grid extent along N/S.
        h: Option<Count<1, 65_536>> = None,
        /// Grid extent along U/D; only mesh_3d and torus_3d.
        d: Option<Count<1, 65_536>> = None,
        /// Every directed link between two SIPs (or between a SIP and the switch).
        link: SipLink = SipLink::default(),
        /// Links along single dimensions of a grid, where they are unlike `link`.
        links: Option<GridLinks> = None,
        /// The switch of `topology: switch`.
        switch: Switch = Switch::default(),
        /// The links of `topology: custom`.
        edges: Vec<Edge> = Vec::new(),
        /// Vertices of `topology: custom` that are no SIP, such as switches; numbered from the number of SIPs on.
        relays: Option<Count<1, 4_096>> = None,
        /// Names of the relays, in their order, for links on reports; `relay0` and so on where absent.
        relay_names: Vec<Told> = Vec::new(),
        /// SIPs of a host of `topology: custom`, neighbours by number, for algorithms that go by hosts; 1 where absent.
        host_size: Option<Count<1, 4_096>> = None,
        /// Which of several equal ways a message takes, of `topology: custom` and of the fabric of nodes.
        routes: Option<RouteKeys> = None,
        /// The nodes of `topology: nodes`.
        nodes: Option<Nodes> = None,
    }
}

section! {
    /// Every directed link between two SIPs (or between a SIP and the switch).
    SipLink {
        /// Latency of a link, in ns.
        latency_ns: Ns = Ns::ps(67_240),
        /// Bandwidth of each direction.
        bandwidth_gbs: Gbs = Gbs::new(128.0),
    }
}

section! {
    /// Links along the dimensions of `mesh_2d_no_wrap`, `torus_2d`, `mesh_3d` or `torus_3d`, where they are unlike
    /// `system.sips.link`.
    GridLinks {
        /// Links along E/W.
        w: Option<DimensionLink> = None,
        /// Links along N/S.
        h: Option<DimensionLink> = None,
        /// Links along U/D; only mesh_3d and torus_3d.
        d: Option<DimensionLink> = None,
    }
}

section! {
    /// Links along one dimension of a grid.
    DimensionLink {
        /// Latency in ns; `system.sips.link.latency_ns` where absent.
        latency_ns: Option<Ns> = None,
        /// Bandwidth of each direction; `system.sips.link.bandwidth_gbs` where absent.
        bandwidth_gbs: Option<Gbs> = None,
    }
}

section! {
    /// The switch of `topology: switch`.
    Switch {
        /// Latency through the switch, in ns, besides the latency of the link on either side.
        latency_ns: Ns = Ns::ps(100_000),
        /// Reduces what a group of SIPs sends and copies what goes to a group; only `topology: switch`.
        reduces: bool = false,
        /// Bandwidth of the results of all its reductions together; `.inf`: as fast as the links.
        reduce_gbs: Gbs = Gbs::new(f64::INFINITY),
    }
}

section! {
    /// The nodes of `topology: nodes`: as many neighbouring SIPs each, behind a switch of their own, with a network
    /// interface each that leads to a spine.
    Nodes {
        /// SIPs of a node; a SIP has a link to and from the node's switch, like `system.sips.link`.
        size: Count<1, 4_096> = Count(8),
        /// Latency through the switch of a node, in ns, besides that of the links on either side.
        switch_ns: Ns = Ns::ps(0),
        /// Latency of a SIP's network interface, each way, in ns.
        nic_latency_ns: Ns = Ns::ps(2_000_000),
        /// Bandwidth of a SIP's network interface, each way.
        nic_gbs: Gbs = Gbs::new(50.0),
        /// Latency through the spine, in ns.
        spine_ns: Ns = Ns::ps(0),
        /// Whether a collective of a library is spread over the interfaces of its SIPs in a node, as libraries that run a
        /// channel over each of them do. What one SIP sends to another always has its own interface alone, and so has
        /// everything where absent.
        striped: Option<bool> = None,
        /// What such a collective of all SIPs of a node carries over what the interfaces carry: above 1 where less crosses
        /// them than a ring would send, since switches reduce; 1 where absent.
        striped_gain: Option<Real> = None,
        /// Bandwidth of a node's interfaces together over that of the node's way to the spine; 1 or more.
        taper: Real = Real(1.0),
        /// The switch of a node reduces what SIPs of the node send and copies what goes to several; false where absent.
        reduces: Option<bool> = None,
        /// Bandwidth of the results of all reductions of a node together; as fast as the links where absent.
        reduce_gbs: Option<Gbs> = None,
        /// The spine reduces what SIPs of several nodes send and copies what goes to several; false where absent.
        spine_reduces: Option<bool> = None,
        /// Bandwidth of the results of all reductions of the spine together; as fast as the links where absent.
        spine_reduce_gbs: Option<Gbs> = None,
        /// Switches of several tiers between the nodes, instead of one spine.
        fabric: Option<FabricKeys> = None,
    }
}

section! {
    /// A link of `topology: custom`.
    Edge {
        /// SIP or relay the link leaves.
        from: Option<Count<0, 65_535>> = None,
        /// SIP or relay the link enters.
        to: Option<Count<0, 65_535>> = None,
        /// Latency in ns; `system.sips.link.latency_ns` where absent.
        latency_ns: Option<Ns> = None,
        /// Bandwidth; `system.sips.link.bandwidth_gbs` where absent.
        bandwidth_gbs: Option<Gbs> = None,
        /// Also adds the opposite link.
        bidirectional: bool = true,
        /// So many of them side by side, each of this bandwidth; 1 where absent. `system.sips.routes` spreads messages over them.
        links: Option<Count<1, 1_024>> = None,
    }
}

section! {
    /// Inside a SIP: the cube mesh and the I/O chiplet.
    Sip {
        /// Cubes of a SIP; cube id = row * w + col, no wrap.
        cube_mesh: CubeMesh = CubeMesh::default(),
        /// The I/O chiplet, where the links to other SIPs and the host's traffic enter.
        io: Io = Io::default(),
    }
}

section! {
    /// Cubes of a SIP; cube id = row * w + col, no wrap.
    CubeMesh {
        /// Columns.
        w: Count<1, 64> = Count(4),
        /// Rows.
        h: Count<1, 64> = Count(4),
    }
}

section! {
    /// The I/O chiplet, where the links to other SIPs and the host's traffic enter.
    Io {
        /// Latency between the I/O chiplet and a cube, each way, both UCIe ports included, in ns.
        latency_ns: Ns = Ns::ps(30_000),
        /// Bandwidth between the I/O chiplet and one cube, each way.
        bandwidth_gbs: Gbs = Gbs::new(128.0),
        /// Latency of passing through the chiplet of a SIP that is neither source nor destination, in ns.
        transit_ns: Ns = Ns::ps(0),
        /// The I/O CPU's part in a kernel launch, in ns; not part of kernel latency.
        cpu_ns: Ns = Ns::ps(10_000),
    }
}

section! {
    /// Inside a cube: PEs, memory, routers, UCIe ports.
    Cube {
        /// Where the PEs sit on the router grid.
        pe_layout: PeLayout = PeLayout::default(),
        /// The cube's stacked memory.
        memory_map: MemoryMap = MemoryMap::default(),
        /// The network on chip: a grid of routers, XY routing (horizontal first).
        noc: Noc = Noc::default(),
        /// UCIe ports N, E, S, W to the neighbouring cubes.
        ucie: Ucie = Ucie::default(),
        /// Memory shared by the cube's PEs.
        sram: Sram = Sram::default(),
    }
}

section! {
    /// Where the PEs sit on the router grid. PEs per cube = corners * pe_per_corner.
    PeLayout {
        /// Corners with PEs, in the order NW, NE, SW, SE.
        corners: Count<1, 4> = Count(4),
        /// PEs at each corner, on neighbouring routers from the corner inwards.
        pe_per_corner: Count<1, 256> = Count(2),
    }
}

section! {
    /// The cube's stacked memory.
    MemoryMap {
        /// HBM of a cube, in units of 2^30 bytes.
        hbm_total_gb: Real = Real(48.0),
        /// Slices the HBM is cut into, one per PE; the number of PEs where absent.
        hbm_slices_per_cube: Option<Count<1, 1024>> = None,
    }
}

section! {
    /// The network on chip: a grid of routers, XY routing (horizontal first).
    Noc {
        /// Router rows.
        rows: Count<1, 64> = Count(6),
        /// Router columns.
        cols: Count<1, 64> = Count(6),
        /// Latency of each router a message passes, in ns.
        router_ns: Ns = Ns::ps(0),
        /// Wire between neighbouring routers, in mm; its delay is pitch_mm * system.ns_per_mm.
        pitch_mm: Real = Real(2.0),
        /// Bandwidth of each directed link between neighbouring routers.
        link_gbs: Gbs = Gbs::new(2048.0),
    }
}

section! {
    /// UCIe ports N, E, S, W to the neighbouring cubes. One crossing costs port + wire + port.
    Ucie {
        /// Latency of one port, in ns.
        port_ns: Ns = Ns::ps(8_000),
        /// Latency of the wire between two ports, in ns.
        wire_ns: Ns = Ns::ps(17_650),
        /// Connections of a port; a message takes the one of its PE's index modulo this.
        connections: Count<1, 64> = Count(4),
        /// Bandwidth of each connection in each direction.
        bandwidth_gbs: Gbs = Gbs::new(128.0),
    }
}

section! {
    /// Memory shared by the cube's PEs.
    Sram {
        /// Capacity, in units of 2^20 bytes.
        mb: Real = Real(32.0),
        /// Bandwidth of its router port, each way.
        bandwidth_gbs: Gbs = Gbs::new(128.0),
    }
}

section! {
    /// Inside a PE: engines and memory ports.
    Pe {
        /// Charged for every `tl` call, in ns.
        dispatch_ns: Ns = Ns::ps(1_000),
        /// Bandwidth from the PE into its router.
        noc_port_gbs: Gbs = Gbs::new(128.0),
        /// Bandwidth from the router into the PE's fast memory.
        noc_port_in_gbs: Gbs = Gbs::new(512.0),
        /// The DMA engine.
        dma: Dma = Dma::default(),
        /// The element-wise engine.
        math: Math = Math::default(),
        /// The matrix engine.
        gemm: Gemm = Gemm::default(),
        /// The PE's own fast memory.
        tcm: Tcm = Tcm::default(),
        /// The PE's ports to its slice of the HBM, one to read and one to write.
        hbm: Hbm = Hbm::default(),
        /// What a job's computations take.
        roofline: Roofline = Roofline::default(),
    }
}

section! {
    /// The DMA engine.
    Dma {
        /// From a descriptor's issue to its first byte, in ns.
        setup_ns: Ns = Ns::ps(10_500),
        /// Transfers under way at once, so many writes and as many reads: a number, each takes the channel that is free
        /// first; or `per_link`, each takes that of the first link between SIPs on its way. 1 where absent.
        channels: Option<DmaChannels> = None,
    }
}

section! {
    /// The element-wise engine. A call is rounded up to whole ns.
    Math {
        /// f16 elements per ns (2 bytes each; wider types go at the same bytes per ns); `.inf` costs nothing.
        f16_per_ns: PerNs = PerNs(256),
    }
}

section! {
    /// The matrix engine.
    Gemm {
        /// Multiply-accumulates per ns; `.inf` costs nothing.
        macs_per_ns: PerNs = PerNs(4096),
    }
}

section! {
    /// What the computations of a training job take, where they state operations and bytes but no duration: the longer of
    /// operations at the peak of their type and bytes at the bandwidth of the memory, or of the host's link. A rank has the
    /// peak and the memory's bandwidth for each of its PEs, and one link to its host.
    Roofline {
        /// The accelerator whose data sheet says so.
        accelerator: Option<Told> = None,
        /// The data sheet.
        source: Option<Told> = None,
        /// Nobody has said what it computes at: computations that state no duration are refused (`AHBM-C193`) unless
        /// `peak_tflops` and `memory_gbs` are there.
        unknown: Option<bool> = None,
        /// Peak of dense arithmetic in types of two bytes, in 1e12 operations per second; by default two per
        /// multiply-accumulate of `gemm`.
        peak_tflops: Option<Real> = None,
        /// Bandwidth of the memory; by default that of the HBM's read port.
        memory_gbs: Option<Real> = None,
        /// Bandwidth of copies between a SIP and its host, each way; by default 32, that of PCIe 4.0 with 16 lanes.
        host_gbs: Option<Real> = None,
        /// What starting a kernel takes beside its work; by default nothing.
        launch_ns: Option<Ns> = None,
        /// Peak in f64, as a share of the peak; by default 0.0625, that of an A100.
        f64_share: Option<Real> = None,
        /// Peak in f32, as a share of the peak; by default 0.0625, that of an A100.
        f32_share: Option<Real> = None,
        /// Peak in TF32, which is f32 with products of ten bits, as a share of the peak; by default 0.5.
        tf32_share: Option<Real> = None,
        /// Peak in types of one byte, as a share of the peak; by default 2.
        byte_share: Option<Real> = None,
    }
}

section! {
    /// The PE's own fast memory.
    Tcm {
        /// Capacity, in units of 2^20 bytes.
        mb: Real = Real(16.0),
        /// Bandwidth of local accesses.
        bandwidth_gbs: Gbs = Gbs::new(512.0),
    }
}

section! {
    /// The PE's ports to its slice of the HBM, one to read and one to write.
    Hbm {
        /// Pseudo-channels of a slice.
        pseudo_channels: Count<1, 1024> = Count(8),
        /// Bandwidth of one pseudo-channel; a port has pseudo_channels times this.
        pc_bandwidth_gbs: Gbs = Gbs::new(32.0),
        /// Latency of an access, in ns.
        access_ns: Ns = Ns::ps(2_000),
    }
}

section! {
    /// Inter-PE communication queues.
    Ipcq {
        /// Address generation and flow control of one `tl.send`, in ns.
        send_ns: Ns = Ns::ps(2_000),
        /// Pointer management of one `tl.recv`, in ns.
        recv_ns: Ns = Ns::ps(0),
        /// The message that returns a slot to its sender.
        credit: Credit = Credit::default(),
        /// Memories that slots can live in; entries merge with the built-in tcm, sram and hbm by name.
        tiers: Tiers = Tiers::default(),
    }
}

section! {
    /// The message that returns a slot to its sender.
    Credit {
        /// Cost besides route and serialisation, in ns.
        overhead_ns: Ns = Ns::ps(1_750),
        /// A receive completes only once its credit has reached the sender.
        blocks_receiver: bool = true,
    }
}

/// `system.sips.topology`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ring1d,
    Torus2d,
    Mesh2d,
    Mesh3d,
    Torus3d,
    Hypercube,
    FullyConnected,
    Switch,
    Nodes,
    Custom,
}

impl Names for Kind {
    const ALL: &'static [(&'static str, Self)] = &[
        ("ring_1d", Self::Ring1d),
        ("torus_2d", Self::Torus2d),
        ("mesh_2d_no_wrap", Self::Mesh2d),
        ("mesh_3d", Self::Mesh3d),
        ("torus_3d", Self::Torus3d),
        ("hypercube", Self::Hypercube),
        ("fully_connected", Self::FullyConnected),
        ("switch", Self::Switch),
        ("nodes", Self::Nodes),
        ("custom", Self::Custom),
    ];
}

impl Names for NetworkModel {
    const ALL: &'static [(&'static str, Self)] =
        &[("cut_through", Self::CutThrough), ("flit", Self::Flit), ("analytic", Self::Analytic)];
}
