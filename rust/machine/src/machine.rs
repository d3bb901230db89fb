//! The resolved machine.

use crate::cube_links::{CubeLink, CubeLinks};
use crate::faults::Faults;
use crate::roofline::Roofline;
use crate::sip_links::{Reducer, SipLinks};
use crate::{
    Band, CallCosts, Compute, Coord, Costs, DmaChannels, Heading, Library, LinkChange, LinkId, Node, PeId, Protocol,
    Ps, Rate, Sfr,
};
use ahbm_findings::Diagnostic;
use serde_json::Value as Json;
use std::cmp::Ordering;
use std::sync::Arc;

/// A resolved machine: shape, links, routes, neighbour tables, costs.
///
/// Small whatever its size: links and routes are arithmetic, only custom edges are stored.
///
/// Links are numbered cube by cube (see `cube_links` for the order inside a cube), then SIP to SIP.
#[derive(Debug, Clone)]
pub struct Machine {
    pub(crate) sfr: Sfr,
    pub(crate) costs: Costs,
    pub(crate) cube: CubeLinks,
    pub(crate) sips: SipLinks,
    /// Id of the first link between SIPs.
    pub(crate) sip_base: u32,
    pub(crate) transit_ps: Ps,
    pub(crate) topology: &'static str,
    pub(crate) io_cpu_ps: Ps,
    pub(crate) tcm_rate: Rate,
    pub(crate) tcm_bytes: u64,
    pub(crate) hbm_bytes: u64,
    pub(crate) sram_bytes: u64,
    pub(crate) canonical: Arc<str>,
    pub(crate) roofline: Roofline,
    pub(crate) assumed: Arc<[String]>,
    pub(crate) sheet: [Option<String>; 2],
    pub(crate) computes: bool,
    pub(crate) compute: Option<Arc<Computes>>,
    pub(crate) faults: Faults,
    /// Latency of a message between SIPs besides that of its links.
    pub(crate) step_ps: Ps,
    /// That of a message between nodes, where there are nodes and it is another one.
    pub(crate) nic_step_ps: Option<Ps>,
    pub(crate) protocols: Arc<[(String, Protocol)]>,
    pub(crate) protocol: Option<String>,
    pub(crate) library: Arc<Library>,
    pub(crate) bands: Option<Arc<[Band]>>,
    pub(crate) ranges: Arc<[(String, u32, u64, u64)]>,
    /// As [`Costs`] has it without a call.
    pub(crate) math_bytes_per_ns: u64,
    pub(crate) call: Arc<CallCosts>,
}

/// What `compute` says.
#[derive(Debug)]
pub(crate) struct Computes {
    pub(crate) law: Compute,
    pub(crate) source: Option<String>,
    pub(crate) fit: Json,
}

/// A directed link between two SIPs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SipLink {
    /// SIP the link leaves; switch and relays are numbered from `sfr().sips` on.
    pub from: u32,
    /// SIP the link enters; switch and relays are numbered from `sfr().sips` on.
    pub to: u32,
    /// The link.
    pub link: LinkId,
    /// Its bandwidth.
    pub rate: Rate,
    /// Its latency, in ps.
    pub latency_ps: Ps,
}

/// A directed connection of a cube of any SIP: to a neighbouring cube, or to and from the SIP's I/O chiplet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CubePort {
    /// Cube the port leaves; the I/O chiplet is number `sfr().cubes()`.
    pub from: u32,
    /// Cube the port enters; the I/O chiplet is number `sfr().cubes()`.
    pub to: u32,
    /// Bandwidth of all its connections together.
    pub rate: Rate,
    /// Its latency, in ps.
    pub latency_ps: Ps,
}

/// Bandwidths of a PE's ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// To its router.
    pub out: Rate,
    /// From its router.
    pub into: Rate,
    /// From its HBM slice.
    pub read: Rate,
    /// To its HBM slice.
    pub write: Rate,
}

/// A switch that reduces, by its number among those of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch(pub(crate) u32);

/// A link by where it is.
pub(crate) enum Place {
    Cube { sip: u32, cube: u32, index: u32 },
    Sips { index: u32 },
    Reducer { switch: u32 },
}

impl Machine {
    /// The algorithms of the communication library, by collective; a collective that it does not name is not there.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Where the machine is valid, and how far it was off there; none for a machine that was fitted to no measurement.
    pub fn bands(&self) -> Option<&[Band]> {
        self.bands.as_deref()
    }

    /// The sizes that each protocol was fitted to: its name, ranks, first and last bytes of one rank's array.
    pub fn ranges(&self) -> &[(String, u32, u64, u64)] {
        &self.ranges
    }

    /// The protocols of the communication library, by name, in the order of the file.
    pub fn protocols(&self) -> &[(String, Protocol)] {
        &self.protocols
    }

    /// The protocol that all runs use; none where each takes the quickest of those that its size allows, or there are
    /// none.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Shape and neighbour tables.
    pub fn sfr(&self) -> &Sfr {
        &self.sfr
    }

    /// Costs of the engines.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Name of the network between SIPs, as in `system.sips.topology`.
    pub fn topology_name(&self) -> &str {
        self.topology
    }

    /// Grid extent along E/W; 0 where the network is not a grid.
    pub fn sip_w(&self) -> u32 {
        self.grid()[0]
    }

    /// Grid extent along N/S; 0 where the network is not a grid.
    pub fn sip_h(&self) -> u32 {
        self.grid()[1]
    }

    /// Grid extent along U/D; 0 where the network is not a grid, 1 in two dimensions.
    pub fn sip_d(&self) -> u32 {
        self.grid()[2]
    }

    fn grid(&self) -> [u32; 3] {
        match self.sfr.network {
            crate::SipNetwork::Grid { w, h, d, .. } => [w, h, d],
            _ => [0; 3],
        }
    }

    /// Total number of PEs; ids are dense in `0..pes()`.
    pub fn pes(&self) -> u32 {
        self.sfr.sips * self.sfr.cubes() * self.sfr.pes
    }

    /// Flat index of a physical coordinate; `None` when out of range.
    pub fn pe(&self, at: Coord) -> Option<PeId> {
        let flat = (at.sip, at.cube, at.pe);
        self.sfr.contains(at).then(|| PeId((flat.0 * self.sfr.cubes() + flat.1) * self.sfr.pes + flat.2))
    }

    /// Physical coordinate of a PE. Ids out of range give a coordinate out of range.
    pub fn coord(&self, pe: PeId) -> Coord {
        let cube = pe.0 / self.sfr.pes;
        Coord { sip: cube / self.sfr.cubes(), cube: cube % self.sfr.cubes(), pe: pe.0 % self.sfr.pes }
    }

    /// Number of directed links; ids are dense in `0..links()`.
    pub fn links(&self) -> u32 {
        self.sip_base + self.sips.links() + self.sips.reducers.len() as u32
    }

    /// The reducer of a switch that reduces, behind all links: its bandwidth is that of the results.
    pub(crate) fn reducer(&self, switch: Switch) -> LinkId {
        LinkId(self.sip_base + self.sips.links() + switch.0)
    }

    pub(crate) fn locate(&self, link: LinkId) -> Option<Place> {
        if link.0 >= self.sip_base {
            let index = link.0 - self.sip_base;
            return match index.cmp(&self.sips.links()) {
                Ordering::Less => Some(Place::Sips { index }),
                _ => {
                    let switch = index - self.sips.links();
                    ((switch as usize) < self.sips.reducers.len()).then_some(Place::Reducer { switch })
                }
            };
        }
        let cube = link.0 / self.cube.links();
        let (sip, cube) = (cube / self.sfr.cubes(), cube % self.sfr.cubes());
        Some(Place::Cube { sip, cube, index: link.0 % self.cube.links() })
    }

    /// Bandwidth of a link; unlimited for ids out of range.
    pub fn link_rate(&self, link: LinkId) -> Rate {
        let own = match self.locate(link) {
            Some(Place::Cube { index, .. }) => self.cube.rate(self.cube.at(index)),
            Some(Place::Sips { index }) => self.sips.link(index).map_or(Rate::UNLIMITED, |link| link.rate),
            Some(Place::Reducer { switch }) => self.sips.reducers[switch as usize].rate,
            None => Rate::UNLIMITED,
        };
        self.faults.on(link).map_or(own, |fault| fault.rate(own))
    }

    /// The link between SIPs whose DMA channel a transfer takes on a way over these links: the first one. None where every
    /// channel takes any transfer, and for what crosses no such link.
    pub fn dma_link(&self, way: impl IntoIterator<Item = LinkId>) -> Option<LinkId> {
        let between = |link: &LinkId| matches!(self.locate(*link), Some(Place::Sips { .. }));
        match self.costs.dma_channels {
            DmaChannels::PerLink => way.into_iter().find(between),
            DmaChannels::Any(_) => None,
        }
    }

    /// Bandwidths of a PE's ports.
    pub fn ports(&self, pe: PeId) -> Ports {
        let [out, into, read, write] = [CubeLink::NocOut, CubeLink::NocIn, CubeLink::HbmRead, CubeLink::HbmWrite]
            .map(|link| self.rate_in_cube(pe, link(self.coord(pe).pe)));
        Ports { out, into, read, write }
    }

    /// Bandwidth of the port of a PE's cube to the I/O chiplet, or of that from it.
    pub fn io_port(&self, pe: PeId, out: bool) -> Rate {
        self.rate_in_cube(pe, if out { CubeLink::IoOut } else { CubeLink::IoIn })
    }

    fn rate_in_cube(&self, pe: PeId, link: CubeLink) -> Rate {
        let at = self.coord(pe);
        let base = (at.sip * self.sfr.cubes() + at.cube) * self.cube.links();
        self.link_rate(LinkId(base + self.cube.index(link)))
    }

    /// Latency of a link itself in ps, without routers or memory; 0 for ids out of range.
    pub fn link_latency_ps(&self, link: LinkId) -> Ps {
        let own = match self.locate(link) {
            Some(Place::Cube { index, .. }) => self.cube.latency_ps(self.cube.at(index)),
            Some(Place::Sips { index }) => self.sips.link(index).map_or(0, |link| link.latency_ps),
            Some(Place::Reducer { .. }) | None => 0,
        };
        self.faults.latency(link, own)
    }

    /// Name of a link for people, e.g. `sip0.cube3.ucie_E2` or `sip0->sip1`.
    pub fn link_name(&self, link: LinkId) -> String {
        let end = |vertex: u32| self.end_name(vertex);
        match self.locate(link) {
            Some(Place::Cube { sip, cube, index }) => {
                format!("sip{sip}.cube{cube}.{}", self.cube.name(self.cube.at(index)))
            }
            Some(Place::Sips { index }) => self.sips.link(index).map_or_else(String::new, |link| {
                let beside = self.sips.between(link.from, link.to);
                let which = if beside.len() > 1 { format!(".{}", index - beside.start) } else { String::new() };
                format!("{}->{}{which}", end(link.from), end(link.to))
            }),
            Some(Place::Reducer { switch }) => {
                let of = end(self.sips.reducers[switch as usize].vertex);
                format!("{}.reducer", of.strip_suffix(".switch").unwrap_or(&of))
            }
            None => format!("link {} of none", link.0),
        }
    }

    /// A SIP, or what is none, by its number among the ends of links.
    pub fn end_name(&self, vertex: u32) -> String {
        let sips = self.sfr.sips;
        let Some(relay) = vertex.checked_sub(sips) else { return format!("sip{vertex}") };
        if let Some(name) = self.sips.names.get(relay as usize) {
            return name.clone();
        }
        match self.topology {
            "switch" => "switch".to_owned(),
            "nodes" => {
                let nodes = self.relays() / 3;
                match relay.checked_div(nodes) {
                    None | Some(0) => format!("node{relay}.switch"),
                    Some(1) => format!("node{}.out", relay - nodes),
                    Some(2) => format!("node{}.in", relay - 2 * nodes),
                    Some(_) => "spine".to_owned(),
                }
            }
            _ => format!("relay{relay}"),
        }
    }

    /// Vertices of the network between SIPs that are no SIP: a switch, or relays.
    pub fn relays(&self) -> u32 {
        self.sips.vertices() - self.sfr.sips
    }

    /// Whether a library's collective is spread over the interfaces of its SIPs in a node of `topology: nodes`.
    pub fn striped(&self) -> bool {
        self.sips.nodes.as_ref().is_some_and(|nodes| nodes.spread)
    }

    /// SIPs of a node of `topology: nodes`, or of a host of a custom network that says so; 1 in other networks.
    pub fn node_size(&self) -> u32 {
        self.sips.host
    }

    /// Whether nodes are joined by switches of several tiers, rather than by one spine.
    pub fn has_fabric(&self) -> bool {
        self.sips.has_fabric()
    }

    /// Whether messages are spread over equal ways.
    pub fn spreads(&self) -> bool {
        matches!(&self.sips.shape, crate::sip_links::Shape::Custom(custom) if custom.spreads())
    }

    /// Whether a link is one between a node of `topology: nodes` and the spine, or between switches of a fabric: it carries
    /// what interfaces send side by side, each no faster than itself.
    pub fn is_trunk(&self, link: LinkId) -> bool {
        let Some(Place::Sips { index }) = self.locate(link) else { return false };
        if self.has_fabric() {
            let switches = self.sfr.sips + self.sfr.sips / self.sips.host;
            return self.sips.link(index).is_some_and(|link| link.from.min(link.to) >= switches);
        }
        let spine = self.sips.vertices() - 1;
        self.topology == "nodes"
            && self.relays() > 1
            && self.sips.link(index).is_some_and(|link| link.from == spine || link.to == spine)
    }

    /// The SIP, and inside a SIP the cube, that a link leaves; `None` for links out of a switch and ids out of range.
    pub fn link_source(&self, link: LinkId) -> Option<(u32, Option<u32>)> {
        match self.locate(link)? {
            Place::Cube { sip, cube, .. } => Some((sip, Some(cube))),
            Place::Sips { index } => {
                self.sips.link(index).filter(|ends| ends.from < self.sfr.sips).map(|ends| (ends.from, None))
            }
            Place::Reducer { .. } => None,
        }
    }

    /// Every directed link between SIPs that is not dead, in id order.
    pub fn links_between_sips(&self) -> impl Iterator<Item = SipLink> + '_ {
        (0..self.sips.links()).filter_map(|index| self.sips.link(index)).filter_map(|ends| {
            let link = LinkId(self.sip_base + ends.index);
            let rate = match self.faults.on(link) {
                Some(fault) if fault.dead => return None,
                Some(fault) => fault.rate(ends.rate),
                None => ends.rate,
            };
            let latency_ps = self.faults.latency(link, ends.latency_ps);
            Some(SipLink { from: ends.from, to: ends.to, link, rate, latency_ps })
        })
    }

    /// Bandwidth and latency of every link between SIPs, where all are alike: `None` for a list of edges, dimensions with
    /// links of their own, a single SIP, and links with faults.
    pub fn sip_link(&self) -> Option<(Rate, Ps)> {
        let listed = self.sfr.network == crate::SipNetwork::Custom;
        let alike = !listed
            && self.sips.along.is_none()
            && self.sfr.sips > 1
            && !self.faults.among(LinkId(self.sip_base)..LinkId(self.sip_base + self.sips.links()));
        alike.then_some((self.sips.carried.link, self.sips.latency_ps))
    }

    /// Thousandths of the declared time that a PE's dispatch and math take: [`crate::FULL_PACE`] without faults.
    pub fn pace(&self, pe: PeId) -> u32 {
        self.faults.pace(pe)
    }

    /// The ports of SIP 0's cubes that are not dead, cube by cube: to the neighbours N, E, S, W, to the I/O chiplet and
    /// from it.
    pub fn cube_ports(&self) -> impl Iterator<Item = CubePort> + '_ {
        let io = self.sfr.cubes();
        let chiplet = self.cube.latency_ps(CubeLink::IoOut);
        let port = |from, to, rate, latency_ps| CubePort { from, to, rate, latency_ps };
        (0..io).flat_map(move |cube| {
            let aside = [port(cube, io, self.cube.io, chiplet), port(io, cube, self.cube.io, chiplet)];
            let neighbours = Heading::MESH.into_iter().filter_map(move |heading| {
                let next = self.cube_at(cube, heading).filter(|_| !self.port_is_dead(0, cube, heading))?;
                // All connections of a port are equal, faults included.
                let link = LinkId(cube * self.cube.links() + self.cube.index(CubeLink::Ucie(heading, 0)));
                let together = self.link_rate(link).gbs() * f64::from(self.cube.connections);
                let rate = Rate::from_gbs(together).unwrap_or(Rate::UNLIMITED);
                Some(port(cube, next, rate, self.link_latency_ps(link)))
            });
            neighbours.chain(aside)
        })
    }

    /// The first connection of every port between cubes of a SIP that is not dead, cube by cube: N, E, S, W.
    pub fn links_between_cubes(&self, sip: u32) -> impl Iterator<Item = LinkId> + '_ {
        (0..self.sfr.cubes()).flat_map(move |cube| {
            let first = (sip * self.sfr.cubes() + cube) * self.cube.links();
            Heading::MESH
                .into_iter()
                .filter(move |&port| self.cube_at(cube, port).is_some() && !self.port_is_dead(sip, cube, port))
                .map(move |port| LinkId(first + self.cube.index(CubeLink::Ucie(port, 0))))
        })
    }

    /// Latency of the switch between SIPs, in ps; 0 where there is none.
    pub fn switch_ps(&self) -> Ps {
        self.sips.switch_ps
    }

    /// True when one switch reduces what any group of the SIPs sends, and copies what goes to any group.
    pub fn switch_reduces(&self) -> bool {
        self.reducing_switch(0..self.sfr.sips).is_ok()
    }

    /// The nearest switch that joins these SIPs and reduces.
    ///
    /// # Errors
    /// `AHBM-T019` when there is none.
    pub fn reducing_switch(&self, sips: impl IntoIterator<Item = u32>) -> Result<Switch, Diagnostic> {
        let ends = sips.into_iter().fold((u32::MAX, 0), |(low, high), sip| (low.min(sip), high.max(sip)));
        let joins = |reducer: &Reducer| reducer.sips.start <= ends.0 && ends.1 < reducer.sips.end;
        if let Some(at) = self.sips.reducers.iter().position(joins) {
            return Ok(Switch(at as u32));
        }
        let (hint, name) = match self.topology {
            "nodes" => {
                ("set system.sips.nodes.reduces to true; between nodes, system.sips.nodes.spine_reduces", "nodes")
            }
            name => ("set system.sips.topology to switch and system.sips.switch.reduces to true", name),
        };
        let message = format!("no switch between SIPs {} and {} reduces: the network is {name}", ends.0, ends.1);
        Err(Diagnostic::new("AHBM-T019", message).hint(hint))
    }

    /// Bandwidth of a PE's accesses to its own TCM.
    pub fn tcm_rate(&self) -> Rate {
        self.tcm_rate
    }

    /// The I/O CPU's part in a kernel launch, in ps.
    pub fn io_cpu_ps(&self) -> Ps {
        self.io_cpu_ps
    }

    /// Capacity in bytes of the memory behind a node, for bounds checks; unlimited for the host's behind an I/O
    /// chiplet.
    pub fn memory_bytes(&self, node: Node) -> u64 {
        match node {
            Node::Pe(_) => self.tcm_bytes,
            Node::Hbm(_) => self.hbm_bytes,
            Node::Sram(_) => self.sram_bytes,
            Node::Io(_) => u64::MAX,
        }
    }

    /// The machine with twice the bandwidth on one link, or without that link's latency; its other properties stay.
    #[must_use]
    pub fn with_link(&self, link: LinkId, change: LinkChange) -> Self {
        let mut machine = self.clone();
        let what = match change {
            LinkChange::Twice => "twice",
            LinkChange::Instant => "instant",
        };
        machine.faults.change(link, change);
        machine.canonical = format!("{}{what} {}\n", self.canonical, self.link_name(link)).into();
        machine
    }

    /// Every parameter with its effective value, one `path=value` per line in declaration order.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// Stable 64-bit hash of everything that influences timing: FNV-1a over [`Machine::canonical`].
    pub fn hash(&self) -> u64 {
        self.canonical
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    /// The cube behind a port.
    pub(crate) fn cube_at(&self, cube: u32, port: Heading) -> Option<u32> {
        let (w, h) = (self.sfr.cube_w, self.sfr.cube_h);
        let (row, col) = (cube / w, cube % w);
        match port {
            Heading::N => (row > 0).then(|| cube - w),
            Heading::E => (col + 1 < w).then(|| cube + 1),
            Heading::S => (row + 1 < h).then(|| cube + w),
            Heading::W => (col > 0).then(|| cube - 1),
            Heading::U | Heading::D => None,
        }
    }

    pub(crate) fn port_is_dead(&self, sip: u32, cube: u32, port: Heading) -> bool {
        let base = (sip * self.sfr.cubes() + cube) * self.cube.links();
        self.faults.dead(LinkId(base + self.cube.index(CubeLink::Ucie(port, 0))))
    }

    /// What was assumed where the machine's file was made from another one.
    pub fn assumed(&self) -> &[String] {
        &self.assumed
    }

    /// The accelerator whose data sheet the roofline is, and that sheet, where the machine names them.
    pub fn sheet(&self) -> (Option<&str>, Option<&str>) {
        (self.sheet[0].as_deref(), self.sheet[1].as_deref())
    }

    /// Whether anybody has said what it computes at.
    ///
    /// # Errors
    /// `AHBM-C193` where nobody has.
    pub fn computes(&self) -> Result<(), Diagnostic> {
        if self.computes {
            return Ok(());
        }
        let what = "the machine does not say what it computes at, and the job has computations without a duration";
        Err(Diagnostic::new("AHBM-C193", what)
            .hint("set pe.roofline.peak_tflops and pe.roofline.memory_gbs, or name its accelerator to ahbm calibrate"))
    }

    /// What a SIP computes at.
    pub fn roofline(&self) -> &Roofline {
        &self.roofline
    }

    /// What its kernels take by their class and dimensions, and their host; nothing where the machine does not say.
    pub fn compute(&self) -> Option<&Compute> {
        self.compute.as_ref().map(|known| &known.law)
    }

    /// Where the numbers of [`Self::compute`] are from, and how they were fitted.
    pub fn compute_source(&self) -> (Option<&str>, &Json) {
        self.compute.as_ref().map_or((None, &Json::Null), |known| (known.source.as_deref(), &known.fit))
    }
}
