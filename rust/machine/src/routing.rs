//! Routes, computed on demand: within a cube, through the cube mesh, over the I/O chiplets.
//!
//! Horizontal before vertical on routers and cubes alike. A message keeps to the UCIe connection of its
//! PE's index all the way.

use crate::cube_links::{CubeLink, Router};
use crate::{Coord, Heading, Hop, LinkId, Machine, Node, Ps, Rate, Route, SipNetwork, Switch};
use ahbm_findings::Diagnostic;
use std::collections::VecDeque;

/// A route in the making and where its head is.
struct Walk<'m> {
    machine: &'m Machine,
    route: Route,
    sip: u32,
    cube: u32,
    router: Router,
    connection: u32,
}

impl Machine {
    /// The shortest way through a SIP's cube mesh that uses no dead port; among equals the one that prefers N, E, S, W
    /// in this order.
    pub(crate) fn cubes_around(&self, sip: u32, from: u32, to: u32) -> Option<Vec<Heading>> {
        let mut entry: Vec<Option<(u32, Heading)>> = vec![None; self.sfr.cubes() as usize];
        let mut queue = VecDeque::from([from]);
        while let Some(cube) = queue.pop_front() {
            for port in Heading::MESH {
                let Some(next) = self.cube_at(cube, port) else { continue };
                if next != from && entry[next as usize].is_none() && !self.port_is_dead(sip, cube, port) {
                    entry[next as usize] = Some((cube, port));
                    queue.push_back(next);
                }
            }
        }
        let (mut ways, mut at) = (Vec::new(), to);
        while at != from {
            let (before, port) = entry[at as usize]?;
            ways.push(port);
            at = before;
        }
        ways.reverse();
        Some(ways)
    }

    /// Names of the dead links, for errors.
    fn dead_links(&self) -> String {
        let dead: Vec<String> =
            self.faults.links.iter().filter(|(_, fault)| fault.dead).map(|&(link, _)| self.link_name(link)).collect();
        let more = if dead.len() > 4 { format!(" and {} more", dead.len() - 4) } else { String::new() };
        dead[..dead.len().min(4)].join(", ") + &more
    }

    /// The way payload takes from one node to another; empty between a node and itself.
    ///
    /// A PE reads and writes its own HBM slice through the slice's port alone; everything else crosses the
    /// network on chip. An HBM read pays the access latency before the port, an HBM write after it.
    ///
    /// # Errors
    /// `AHBM-T016` when a node does not exist, `AHBM-T012` when a custom network has no way between two SIPs,
    /// `AHBM-T018` when dead links leave none.
    pub fn route(&self, from: Node, to: Node) -> Result<Route, Diagnostic> {
        let (source, target) = (self.place(from)?, self.place(to)?);
        if from == to || (matches!((from, to), (Node::Sram(_), Node::Sram(_))) && source.cube_of() == target.cube_of())
        {
            return Ok(Route::default());
        }
        let connection = match from {
            Node::Io(_) => target.pe,
            _ => source.pe,
        } % self.cube.connections;
        let mut walk = Walk {
            machine: self,
            route: Route { head_ps: 0, hops: Vec::with_capacity(16) },
            sip: source.sip,
            cube: source.cube,
            router: (0, 0),
            connection,
        };
        match (from, to) {
            (Node::Hbm(a), Node::Pe(b)) if a == b => {
                walk.wait(self.cube.access_ps);
                walk.cube_link(CubeLink::HbmRead(source.pe));
            }
            (Node::Pe(a), Node::Hbm(b)) if a == b => {
                walk.cube_link(CubeLink::HbmWrite(source.pe));
                walk.wait(self.cube.access_ps);
            }
            _ => {
                walk.leave(from, source);
                walk.travel(from, target, matches!(to, Node::Io(_)))?;
                walk.enter(to, target);
            }
        }
        Ok(walk.route)
    }

    /// The way payload takes from a node to a switch that reduces, the latency of the switch included.
    ///
    /// # Errors
    /// `AHBM-T016` when the node does not exist, `AHBM-T018` when a link on the way is dead.
    pub fn route_to_switch(&self, from: Node, switch: Switch) -> Result<Route, Diagnostic> {
        let source = self.place(from)?;
        let mut walk = self.at_switch(source);
        if !matches!(from, Node::Io(_)) {
            walk.leave(from, source);
            walk.leave_cube();
        }
        let reducer = &self.sips.reducers[switch.0 as usize];
        walk.wait(self.step_between(reducer.sips.start, reducer.sips.end - 1));
        walk.between(source.sip, reducer.vertex)?;
        if self.sfr.network == SipNetwork::Switch {
            walk.wait(self.sips.switch_ps);
        }
        Ok(walk.route)
    }

    /// The way payload takes from a switch that reduces to a node; what was `reduced` passes the reducer first.
    ///
    /// # Errors
    /// As [`Machine::route_to_switch`].
    pub fn route_from_switch(&self, to: Node, switch: Switch, reduced: bool) -> Result<Route, Diagnostic> {
        let target = self.place(to)?;
        let mut walk = self.at_switch(target);
        if reduced {
            walk.link(self.reducer(switch).0, self.link_rate(self.reducer(switch)), 0);
        }
        walk.between(self.sips.reducers[switch.0 as usize].vertex, target.sip)?;
        if !matches!(to, Node::Io(_)) {
            walk.enter_cube(target);
        }
        walk.enter(to, target);
        Ok(walk.route)
    }

    /// Latency of a message from one SIP to another besides that of its links.
    fn step_between(&self, from: u32, to: u32) -> Ps {
        let Some(nic) = self.nic_step_ps else { return self.step_ps };
        let size = self.node_size();
        if from / size == to / size { self.step_ps } else { nic }
    }

    /// A route without links whose end at this side of the switch is `at`.
    fn at_switch(&self, at: Coord) -> Walk<'_> {
        let route = Route { head_ps: 0, hops: Vec::with_capacity(8) };
        Walk { machine: self, route, sip: at.sip, cube: at.cube, router: (0, 0), connection: 0 }
    }

    /// Coordinate of a node, the I/O chiplet standing at cube 0.
    fn place(&self, node: Node) -> Result<Coord, Diagnostic> {
        let found = match node {
            Node::Pe(pe) | Node::Hbm(pe) | Node::Sram(pe) => (pe.0 < self.pes()).then(|| self.coord(pe)),
            Node::Io(sip) => (sip < self.sfr.sips).then_some(Coord { sip, cube: 0, pe: 0 }),
        };
        found.ok_or_else(|| {
            let message =
                format!("{node:?} does not exist in a machine of {} SIPs and {} PEs", self.sfr.sips, self.pes());
            Diagnostic::new("AHBM-T016", message)
        })
    }
}

trait CubeOf {
    fn cube_of(self) -> (u32, u32);
}

impl CubeOf for Coord {
    fn cube_of(self) -> (u32, u32) {
        (self.sip, self.cube)
    }
}

impl Walk<'_> {
    /// Latency that occupies nothing: it belongs to the link before it.
    fn wait(&mut self, ps: Ps) {
        match self.route.hops.last_mut() {
            Some(hop) => hop.after_ps += ps,
            None => self.route.head_ps += ps,
        }
    }

    fn link(&mut self, link: u32, rate: Rate, latency_ps: Ps) {
        let latency_ps = self.machine.faults.latency(LinkId(link), latency_ps);
        if rate.is_unlimited() {
            self.wait(latency_ps);
        } else {
            self.route.hops.push(Hop { link: LinkId(link), after_ps: latency_ps });
        }
    }

    fn cube_link(&mut self, link: CubeLink) {
        let cube = &self.machine.cube;
        let base = (self.sip * self.machine.sfr.cubes() + self.cube) * cube.links();
        self.link(base + cube.index(link), cube.rate(link), cube.latency_ps(link));
    }

    /// From the source to its router, or out of the I/O chiplet.
    fn leave(&mut self, from: Node, at: Coord) {
        let cube = &self.machine.cube;
        match from {
            Node::Pe(_) => self.cube_link(CubeLink::NocOut(at.pe)),
            Node::Hbm(_) => {
                self.wait(cube.access_ps);
                self.cube_link(CubeLink::HbmRead(at.pe));
            }
            Node::Sram(_) => self.cube_link(CubeLink::SramRead),
            Node::Io(_) => return,
        }
        self.router = if matches!(from, Node::Sram(_)) { cube.sram_router() } else { cube.pe_router(at.pe) };
        self.wait(cube.router_ps);
    }

    /// From the last router to the destination.
    fn enter(&mut self, to: Node, at: Coord) {
        let cube = &self.machine.cube;
        match to {
            Node::Pe(_) => {
                self.walk_to(cube.pe_router(at.pe));
                self.cube_link(CubeLink::NocIn(at.pe));
            }
            Node::Hbm(_) => {
                self.walk_to(cube.pe_router(at.pe));
                self.cube_link(CubeLink::HbmWrite(at.pe));
                self.wait(cube.access_ps);
            }
            Node::Sram(_) => {
                self.walk_to(cube.sram_router());
                self.cube_link(CubeLink::SramWrite);
            }
            Node::Io(_) => {}
        }
    }

    /// To the cube of the destination, or into the I/O chiplet.
    fn travel(&mut self, from: Node, target: Coord, to_io: bool) -> Result<(), Diagnostic> {
        let from_io = matches!(from, Node::Io(_));
        if self.sip == target.sip && !from_io && !to_io {
            return self.cross_cubes(target.cube);
        }
        if !from_io {
            self.leave_cube();
        }
        if self.sip != target.sip {
            self.cross_sips(target.sip)?;
        }
        if !to_io {
            self.enter_cube(target);
        }
        Ok(())
    }

    /// From the router to the I/O chiplet.
    fn leave_cube(&mut self) {
        self.walk_to(self.machine.cube.io_router());
        self.cube_link(CubeLink::IoOut);
    }

    /// From the I/O chiplet to a cube's router.
    fn enter_cube(&mut self, target: Coord) {
        self.cube = target.cube;
        self.cube_link(CubeLink::IoIn);
        self.router = self.machine.cube.io_router();
        self.wait(self.machine.cube.router_ps);
    }

    /// The links between a SIP and a switch, in either direction.
    fn between(&mut self, from: u32, to: u32) -> Result<(), Diagnostic> {
        let machine = self.machine;
        let Some(links) = machine.sips.links_between(from, to) else {
            return Err(Diagnostic::new("AHBM-T012", format!("no link from {from} to {to}")));
        };
        for link in links.into_iter().filter_map(|index| machine.sips.link(index)) {
            if machine.faults.dead(LinkId(machine.sip_base + link.index)) {
                let switch = machine.end_name(from.max(to));
                return Err(self.cut_off(&format!("SIP {} from the {switch}", from.min(to))));
            }
            self.link(machine.sip_base + link.index, link.rate, link.latency_ps);
        }
        Ok(())
    }

    fn cross_sips(&mut self, to: u32) -> Result<(), Diagnostic> {
        let machine = self.machine;
        let from = self.sip;
        self.wait(machine.step_between(from, to));
        let (mut links, mut dead) = (Vec::with_capacity(4), false);
        let reached = machine.sips.path(from, to, &mut |link, after_ps| {
            dead |= machine.faults.dead(LinkId(machine.sip_base + link.index));
            links.push((link, after_ps));
        });
        if dead {
            let Some(detour) = machine.faults.detour(from, to) else {
                return Err(self.cut_off(&format!("SIP {to} from SIP {from}")));
            };
            // A switch has one link to each SIP: nothing goes round it.
            links = detour.into_iter().filter_map(|index| machine.sips.link(index)).map(|link| (link, 0)).collect();
        }
        for (position, (link, after_ps)) in links.into_iter().enumerate() {
            if position > 0 && link.from < machine.sfr.sips {
                self.wait(machine.transit_ps);
            }
            self.link(machine.sip_base + link.index, link.rate, link.latency_ps);
            self.wait(after_ps);
        }
        if !reached {
            return Err(Diagnostic::new("AHBM-T012", format!("no way from SIP {from} to SIP {to}"))
                .hint("add edges to system.sips.edges that join them"));
        }
        self.sip = to;
        Ok(())
    }

    fn cut_off(&self, whom: &str) -> Diagnostic {
        let dead = self.machine.dead_links();
        Diagnostic::new("AHBM-T018", format!("dead links cut off {whom}: {dead}"))
            .hint("remove a dead link from `faults`, or use a network with another way round")
    }

    /// Through the cube mesh: columns first, then rows; round dead ports.
    fn cross_cubes(&mut self, to: u32) -> Result<(), Diagnostic> {
        let machine = self.machine;
        let w = machine.sfr.cube_w;
        let (mut ways, mut at, mut dead) = (Vec::with_capacity(4), self.cube, false);
        while at != to {
            let (row, col) = (at / w, at % w);
            let (port, next) = if col < to % w {
                (Heading::E, at + 1)
            } else if col > to % w {
                (Heading::W, at - 1)
            } else if row < to / w {
                (Heading::S, at + w)
            } else {
                (Heading::N, at - w)
            };
            dead |= machine.port_is_dead(self.sip, at, port);
            ways.push(port);
            at = next;
        }
        if dead {
            let whom = || format!("cube {to} from cube {} of SIP {}", self.cube, self.sip);
            ways = machine.cubes_around(self.sip, self.cube, to).ok_or_else(|| self.cut_off(&whom()))?;
        }
        for port in ways {
            let next = machine.cube_at(self.cube, port).unwrap_or(to);
            let cube = &machine.cube;
            self.walk_to(cube.ucie_router(port, self.connection));
            self.cube_link(CubeLink::Ucie(port, self.connection));
            self.cube = next;
            self.router = cube.ucie_router(port.opposite(), self.connection);
            self.wait(cube.router_ps);
        }
        Ok(())
    }

    /// Over the network on chip: horizontal first, then vertical. The router at the start is paid already.
    fn walk_to(&mut self, to: Router) {
        while self.router != to {
            let (row, col) = self.router;
            let (heading, next) = if col < to.1 {
                (Heading::E, (row, col + 1))
            } else if col > to.1 {
                (Heading::W, (row, col - 1))
            } else if row < to.0 {
                (Heading::S, (row + 1, col))
            } else {
                (Heading::N, (row - 1, col))
            };
            self.cube_link(CubeLink::Noc(self.router, heading));
            self.router = next;
            self.wait(self.machine.cube.router_ps);
        }
    }
}
