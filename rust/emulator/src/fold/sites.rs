//! The places at which the programs of a job run, and the links that they use there.

use super::Parties;
use super::shape::Shape;
use ahbm_machine::{LinkId, Machine};
use ahbm_program::Program;
use ahbm_program::job::Share;
use rustc_hash::{FxHashMap, FxHashSet};

/// A program on a set of ranks. All launches of it there are alike.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) shape: u32,
    /// Per member of the program's group, the rank and its node in the first launch here.
    pub(super) members: Box<[(u32, u32)]>,
    /// Number of its first flow.
    first: u32,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Sites {
    pub(super) shapes: Vec<Shape>,
    pub(super) list: Vec<Site>,
    /// Per launch its site.
    pub(super) of: Vec<u32>,
    /// Per site of a launch, the numbers and the sites of the launch's copies.
    pub(super) copies: FxHashMap<u32, Vec<(u32, u32)>>,
    /// Links in use.
    pub(super) links: Vec<LinkId>,
    /// Per link of the machine, its position among those and one; 0 for one that is not in use.
    numbers: Vec<u32>,
    /// The links of all flows, positions in `links`; per flow where its own begin, and the end.
    hops: (Vec<u32>, Vec<u32>),
}

impl Sites {
    /// None where an agent of a program cannot stand for another.
    pub(super) fn new(job: &impl Parties, launches: &[Share<'_>], machine: &Machine) -> Option<Self> {
        let numbers = vec![0; machine.links() as usize];
        let mut sites = Self { hops: (Vec::new(), vec![0]), numbers, ..Self::default() };
        let mut shapes: FxHashMap<*const Program, u32> = FxHashMap::default();
        let mut known: FxHashMap<(u32, &[u32]), u32> = FxHashMap::default();
        for (launch, share) in (0..).zip(launches) {
            let shape = match shapes.get(&std::ptr::from_ref(share.program)) {
                Some(&shape) => shape,
                None => {
                    sites.shapes.push(Shape::new(machine, share.program, share.home)?);
                    let shape = sites.shapes.len() as u32 - 1;
                    shapes.insert(share.program, shape);
                    shape
                }
            };
            // The order of the parts counts: of a message the first one sends.
            let site = match known.get(&(shape, share.sips)) {
                Some(&site) => site,
                None => {
                    let site = sites.add(job, launch, share, machine, shape)?;
                    known.insert((shape, share.sips), site);
                    site
                }
            };
            sites.of.push(site);
        }
        if let Some(copies) = job.copies() {
            // A launch that is its own copy has one site.
            let mut seen = FxHashSet::default();
            for (launch, share) in (0..).zip(launches) {
                let site = sites.of[launch as usize];
                if seen.insert(site) {
                    for nth in copies.of(share.sips).into_iter().skip(1) {
                        let moved =
                            |ranks: &[u32]| -> Vec<u32> { ranks.iter().map(|&rank| copies.copy(rank, nth)).collect() };
                        let (there, sips) = (moved(share.there), moved(share.sips));
                        let share = Share { there: &there, sips: &sips, ..*share };
                        let members = (0..job.parts(launch)).map(|part| job.member(launch, part));
                        let members = members.map(|(rank, node)| (copies.copy(rank, nth), node)).collect();
                        let copy = sites.place(members, &share, machine, sites.list[site as usize].shape)?;
                        sites.copies.entry(site).or_default().push((nth, copy));
                    }
                }
            }
        }
        sites.numbers = Vec::new();
        Some(sites)
    }

    fn add(
        &mut self,
        job: &impl Parties,
        launch: u32,
        share: &Share<'_>,
        machine: &Machine,
        shape: u32,
    ) -> Option<u32> {
        self.place((0..job.parts(launch)).map(|part| job.member(launch, part)).collect(), share, machine, shape)
    }

    fn place(
        &mut self,
        mut members: Box<[(u32, u32)]>,
        share: &Share<'_>,
        machine: &Machine,
        shape: u32,
    ) -> Option<u32> {
        members.sort_unstable();
        self.list.push(Site { shape, members, first: self.hops.1.len() as u32 - 1 });
        for flow in self.shapes[shape as usize].actors.iter().flat_map(|actor| &actor.flows) {
            let route = machine.route(share.node(machine, flow.from), share.node(machine, flow.to)).ok()?;
            for hop in &route.hops {
                let number = self.numbers.get_mut(hop.link.0 as usize)?;
                if *number == 0 {
                    self.links.push(hop.link);
                    *number = self.links.len() as u32;
                }
                self.hops.0.push(*number - 1);
            }
            self.hops.1.push(self.hops.0.len() as u32);
        }
        Some(self.list.len() as u32 - 1)
    }

    /// The shape of a site.
    pub(super) fn shape(&self, site: u32) -> &Shape {
        &self.shapes[self.list[site as usize].shape as usize]
    }

    /// As of [`Machine::dma_link`], of a way as positions in `links`.
    pub(super) fn dma_link(&self, machine: &Machine, way: &[u32]) -> Option<LinkId> {
        machine.dma_link(way.iter().map(|&link| self.links[link as usize]))
    }

    /// The links of an agent of a site, flow by flow: positions in `links`. Agents are asked for in order; `next` counts
    /// their flows and begins at 0.
    pub(super) fn ways(&self, site: u32, agent: usize, next: &mut usize) -> impl Iterator<Item = &[u32]> {
        let first = self.list[site as usize].first as usize + *next;
        let count = self.shape(site).actors[agent].flows.len();
        *next += count;
        let (links, starts) = &self.hops;
        (first..first + count).map(|flow| &links[starts[flow] as usize..starts[flow + 1] as usize])
    }
}
