//! Jobs: programs that share one machine. Hosts compute, arrive at launches and wait for them.
//!
//! A launch starts when every host that takes part has arrived and the launch it follows has ended; all its agents
//! start at that common time. It ends with its last agent. Engines and links are shared between launches, channels,
//! buffers, counters and barriers are each launch's own.

mod assembly;

pub use assembly::{Assembly, Part, Share, Stands, Themselves, assemble};

use crate::{
    Agent, AgentId, Body, BufferId, Channel, ChannelId, Control, Duty, Gate, Locus, Op, OpKind, Origin, OriginId,
    Program, Shared,
};
use ahbm_findings::Diagnostic;
use ahbm_machine::{CallCosts, Coord, PeId};
use indexmap::IndexSet;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// The next act of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Computes for so many picoseconds.
    Advance(u64),
    /// Takes part in a launch, without waiting for it.
    Arrive(u32),
    /// Waits for the end of a launch.
    Wait(u32),
}

/// A launch of a job.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The program that runs; `None` is over as soon as it starts.
    pub program: Option<&'a Program>,
    /// The launch that must have ended before.
    pub after: Option<u32>,
    /// It starts no earlier.
    pub not_before: u64,
}

/// A job as a program, for its times; memory operands are there, data is not.
#[derive(Debug, Clone)]
pub struct Composition {
    /// The program.
    pub program: Program,
    /// Per launch its agents. The first one only starts the others: its end is the launch's start.
    pub launches: Vec<Range<usize>>,
}

/// Every agent counts this once it is there.
const ONE: u32 = 1;

/// Composes a job of `hosts`, each a SIP and a list of steps, from `launches`.
pub fn compose(name: &str, hosts: &[(u32, Vec<Step>)], launches: &[Launch<'_>]) -> Composition {
    let mut writer = Writer::new(name);
    let nowhere = writer.program.origins.intern(Origin { file: name.into(), locus: Locus::Whole });
    // Per launch three counters: hosts that have arrived, whether it has started, agents that have ended.
    writer.program.counters = 3 * launches.len() as u32;
    let mut arrivals = vec![0; launches.len()];
    for step in hosts.iter().flat_map(|(_, steps)| steps) {
        if let Step::Arrive(launch) = step {
            arrivals[*launch as usize] += 1;
        }
    }
    let ends = |launch: u32| launches[launch as usize].program.map_or(ONE, |program| program.agents.len() as u32);
    let ended = |launch: u32| Control::WaitCounter { counter: 3 * launch + 2, at_least: ends(launch) };
    for (sip, steps) in hosts {
        let ops = steps.iter().map(|step| match *step {
            Step::Advance(ps) => Control::Delay { ps },
            Step::Arrive(launch) => Control::Signal { counter: 3 * launch, add: ONE, posted: false },
            Step::Wait(launch) => ended(launch),
        });
        writer.control(Duty::Host(*sip), ops, vec![nowhere; steps.len()]);
    }
    let mut agents = Vec::with_capacity(launches.len());
    for (index, (launch, &hosts)) in (0..).zip(launches.iter().zip(&arrivals)) {
        let first = writer.program.agents.len();
        let ready = [
            Some(Control::Delay { ps: launch.not_before }),
            Some(Control::WaitCounter { counter: 3 * index, at_least: hosts }),
            launch.after.map(ended),
            Some(Control::Signal { counter: 3 * index + 1, add: ONE, posted: false }),
            launch.program.is_none().then_some(Control::Signal { counter: 3 * index + 2, add: ONE, posted: false }),
        ];
        let ready: Vec<Control> = ready.into_iter().flatten().collect();
        let origins = vec![nowhere; ready.len()];
        writer.control(Duty::Starter, ready.into_iter(), origins);
        if let Some(program) = launch.program {
            writer.launch(index, program, Gate { start: 3 * index + 1, end: 3 * index + 2 });
        }
        agents.push(first..writer.program.agents.len());
    }
    Composition { program: writer.program, launches: agents }
}

/// Programs of one job, each with the costs of its call: their agents name them in one list.
///
/// # Errors
/// `AHBM-V125` for more than 65,535 costs.
pub fn with_costs<'a>(
    programs: impl Iterator<Item = Option<(&'a Arc<Program>, &'a CallCosts)>>,
) -> Result<Vec<Option<Arc<Program>>>, Diagnostic> {
    let (mut list, plain) = (IndexSet::new(), CallCosts::default());
    let mut place = |call: &CallCosts| if *call == plain { 0 } else { list.insert_full(call.clone()).0 + 1 };
    let programs: Vec<_> = programs.map(|one| one.map(|(program, call)| (program, place(call)))).collect();
    if list.len() > usize::from(u16::MAX) {
        return Err(Diagnostic::new("AHBM-V125", format!("calls have {} costs, more than 65,535", list.len())));
    }
    let list: Arc<[CallCosts]> = list.into_iter().collect();
    // Calls share programs, by their addresses.
    let mut made: FxHashMap<(*const Program, usize), Arc<Program>> = FxHashMap::default();
    let mut with = |(program, costs): (&Arc<Program>, usize)| {
        if costs == 0 {
            return Arc::clone(program);
        }
        let own = made.entry((Arc::as_ptr(program), costs)).or_insert_with(|| {
            let agents = program.agents.iter().map(|agent| Agent { costs: costs as u16, ..*agent }).collect();
            Arc::new(Program { agents, costs: Arc::clone(&list), ..Program::clone(program) })
        });
        Arc::clone(own)
    };
    Ok(programs.into_iter().map(|one| one.map(&mut with)).collect())
}

/// Writes programs into one.
#[derive(Default)]
struct Writer {
    program: Program,
    /// What the bodies of a program are here, by the program, and the launch whose counters they name.
    imported: FxHashMap<(*const Program, u32), Rc<[u32]>>,
}

/// The launch of bodies that name no counters.
const ANY: u32 = u32::MAX;

/// The number of what is not in a program.
const ABSENT: u32 = u32::MAX;

impl Writer {
    fn new(name: &str) -> Self {
        Self { program: Program { name: name.into(), ..Program::default() }, ..Self::default() }
    }

    /// Adds an agent of the job itself. It needs no engine of its PE, so any place does.
    fn control(&mut self, duty: Duty, kinds: impl Iterator<Item = Control>, origins: Vec<OriginId>) {
        let ops: Shared<Op> = kinds.map(|kind| Op { kind: kind.into(), calls: 0 }).collect();
        let origins = origins.into();
        self.program.bodies.push(Arc::new(Body { ops, origins, ..Body::default() }));
        self.program.agents.push(Agent {
            coord: Coord { sip: 0, cube: 0, pe: 0 },
            place: PeId(0),
            body: self.program.bodies.len() as u32 - 1,
            channels: self.program.channel_table.len() as u32,
            buffers: self.program.buffer_table.len() as u32,
            rank: 0,
            costs: 0,
        });
        self.program.duties.push(duty);
    }

    /// Adds a launch whose agents share a gate.
    fn launch(&mut self, launch: u32, program: &Program, gate: Gate) {
        let (counters, barriers) = self.counters(program);
        let bodies = self.bodies(launch, program, (counters, barriers), |_| true);
        let to = &mut self.program;
        let [agent, channel] = [to.agents.len(), to.channels.len()].map(|n| n as u32);
        let [channels, buffers, buffer] =
            [to.channel_table.len(), to.buffer_table.len(), to.buffers.len()].map(|n| n as u32);
        let moved = |id: ChannelId| if id == ChannelId::NONE { id } else { ChannelId(id.0 + channel) };
        to.agents.extend(program.agents.iter().map(|a| Agent {
            body: bodies[a.body as usize],
            channels: a.channels + channels,
            buffers: a.buffers + buffers,
            ..*a
        }));
        to.duties.extend(program.agents.iter().map(|_| Duty::Launched(gate)));
        to.channels.extend(program.channels.iter().map(|c| Channel {
            sender: AgentId(c.sender.0 + agent),
            receiver: AgentId(c.receiver.0 + agent),
            ..*c
        }));
        to.channel_table.extend(program.channel_table.iter().map(|&id| moved(id)));
        to.buffers.extend(&program.buffers);
        to.buffer_table.extend(program.buffer_table.iter().map(|id| BufferId(id.0 + buffer)));
    }

    /// Adds the counters and barriers of a program, and the costs of its calls; returns where the former begin.
    fn counters(&mut self, program: &Program) -> (u32, u32) {
        let to = &mut self.program;
        let first = (to.counters, to.barriers.len() as u32);
        if to.costs.is_empty() {
            to.costs = Arc::clone(&program.costs);
        }
        to.counters += program.counters;
        to.barriers.extend(&program.barriers);
        first
    }

    /// What the bodies of `program` that are `used` are here. Launches share them unless they name counters or barriers.
    fn bodies(
        &mut self,
        launch: u32,
        program: &Program,
        (counters, barriers): (u32, u32),
        used: impl Fn(u32) -> bool,
    ) -> Rc<[u32]> {
        let own = program.counters > 0 || !program.barriers.is_empty();
        let key = (std::ptr::from_ref(program), if own { launch } else { ANY });
        if let Some(known) = self.imported.get(&key) {
            return Rc::clone(known);
        }
        let to = &mut self.program;
        let origins: Vec<OriginId> = program.origins.iter().map(|origin| to.origins.intern(origin.clone())).collect();
        let import = |(index, body): (u32, &Arc<Body>)| {
            if !used(index) {
                return ABSENT;
            }
            to.bodies.push(Arc::new(Body {
                ops: body.ops.iter().map(|op| Op { kind: moved(op.kind, counters, barriers), ..*op }).collect(),
                origins: body.origins.iter().map(|id| origins[id.0 as usize]).collect(),
                ..Body::clone(body)
            }));
            to.bodies.len() as u32 - 1
        };
        let made: Rc<[u32]> = (0..).zip(&program.bodies).map(import).collect();
        self.imported.insert(key, Rc::clone(&made));
        made
    }
}

fn moved(kind: OpKind, counters: u32, barriers: u32) -> OpKind {
    let OpKind::Control(control) = kind else { return kind };
    OpKind::Control(match control {
        Control::Signal { counter, add, posted } => Control::Signal { counter: counter + counters, add, posted },
        Control::WaitCounter { counter, at_least } => Control::WaitCounter { counter: counter + counters, at_least },
        Control::Acquire { counter, amount } => Control::Acquire { counter: counter + counters, amount },
        Control::Barrier { id } => Control::Barrier { id: id + barriers },
        Control::Fence | Control::Delay { .. } => control,
    })
}
