//! Deadlock reports: who waits for whom, and since when.

use super::Sim;
use super::agent::Wait;
use super::recorder::Recorder;
use ahbm_engine::FifoId;
use ahbm_findings::Diagnostic;
use ahbm_program::{AgentId, ChannelId};

/// Agents listed in a report before it only counts the rest.
const LISTED: usize = 16;

/// Names the wait-for cycle (or the chain that ends at a finished agent) and every blocked agent.
pub(super) fn deadlock(sim: &Sim<'_, impl Recorder>) -> Diagnostic {
    let blocked: Vec<AgentId> =
        (0..sim.agents.len() as u32).map(AgentId).filter(|&a| wait(sim, a) != Wait::Finished).collect();
    let chain = chain(sim, &blocked);
    let at = sim.agents.iter().map(|a| a.borrow().clock).max().unwrap_or(0);
    let cyclic = chain.len() > 1 && chain.first() == chain.last();
    let mut report = Diagnostic::new(
        "AHBM-D101",
        format!(
            "deadlock at t={:.3} us: {} of {} agents wait; nothing is in flight; {} {}",
            at as f64 / 1e6,
            blocked.len(),
            sim.agents.len(),
            if cyclic { "cycle:" } else { "chain:" },
            chain.iter().map(|&a| name(sim, a)).collect::<Vec<_>>().join(" -> "),
        ),
    );
    // The last agent of a cycle is its first.
    let mut shown = chain[..chain.len() - usize::from(cyclic)].to_vec();
    shown.extend(blocked.iter().filter(|a| !chain.contains(a)));
    for &agent in shown.iter().take(LISTED) {
        report = describe(sim, agent, report);
    }
    if shown.len() > LISTED {
        report = report.site(format!("... and {} more", shown.len() - LISTED), "");
    }
    report.hint(hint(sim, &blocked, cyclic))
}

fn wait(sim: &Sim<'_, impl Recorder>, agent: AgentId) -> Wait {
    sim.agents[agent.0 as usize].borrow().wait
}

fn name(sim: &Sim<'_, impl Recorder>, agent: AgentId) -> String {
    sim.program.agents[agent.0 as usize].name(sim.machine)
}

/// Follows the wait-for relation from the agent that stopped first until it repeats or ends.
fn chain(sim: &Sim<'_, impl Recorder>, blocked: &[AgentId]) -> Vec<AgentId> {
    let mut longest = Vec::new();
    let mut visited = vec![false; sim.agents.len()];
    for &first in blocked {
        let mut path = Vec::new();
        let mut at = Some(first);
        while let Some(agent) = at {
            if let Some(start) = path.iter().position(|&p| p == agent) {
                let mut cycle = path.split_off(start);
                cycle.push(agent);
                return cycle;
            }
            if std::mem::replace(&mut visited[agent.0 as usize], true) {
                break;
            }
            path.push(agent);
            at = waits_for(sim, agent);
        }
        if path.len() > longest.len() {
            longest = path;
        }
    }
    longest
}

fn waits_for(sim: &Sim<'_, impl Recorder>, agent: AgentId) -> Option<AgentId> {
    match wait(sim, agent) {
        Wait::Credit(channel) => Some(sim.program.channels[channel.0 as usize].receiver),
        Wait::Message(channel) => Some(sim.program.channels[channel.0 as usize].sender),
        Wait::AnyMessage => {
            let inbound = sim.wiring.inbound.get(&agent)?;
            let unfinished = |c: &&ChannelId| {
                let sender = sim.program.channels[c.0 as usize].sender;
                wait(sim, sender) != Wait::Finished
            };
            let channel = inbound.iter().find(unfinished).or(inbound.first())?;
            Some(sim.program.channels[channel.0 as usize].sender)
        }
        Wait::Barrier(_) => (0..sim.agents.len() as u32)
            .map(AgentId)
            .find(|a| !matches!(wait(sim, *a), Wait::Barrier(_) | Wait::Finished)),
        Wait::Nothing | Wait::Transfer | Wait::Counter(_) | Wait::Finished => None,
    }
}

fn describe(sim: &Sim<'_, impl Recorder>, agent: AgentId, report: Diagnostic) -> Diagnostic {
    let (pc, clock) = {
        let state = sim.agents[agent.0 as usize].borrow();
        (state.pc as usize, state.clock)
    };
    let who = name(sim, agent);
    let last = format!("last progress {:.3} us", clock as f64 / 1e6);
    if wait(sim, agent) == Wait::Finished {
        return report
            .site(format!("{who} has finished; {last}"), sim.program.origin_text(agent, pc.saturating_sub(1)));
    }
    let what = sim.program.describe(agent, pc);
    let why = match wait(sim, agent) {
        Wait::Message(channel) => peer_message(sim, channel),
        Wait::Credit(channel) => {
            let c = &sim.program.channels[channel.0 as usize];
            let (sent, taken) = sim.fifos.progress(FifoId(channel.0));
            format!("the queue to {} is full: {} slots, {sent} sent, {taken} received", name(sim, c.receiver), c.slots)
        }
        Wait::AnyMessage => "no direction has a message".into(),
        Wait::Counter(id) => format!("the counter stands at {}", sim.counters[id as usize].value.get()),
        Wait::Barrier(id) => {
            format!("{} of {} have arrived", sim.barriers[id as usize].arrived.get(), sim.program.barriers[id as usize])
        }
        Wait::Nothing | Wait::Transfer | Wait::Finished => String::new(),
    };
    report.site(format!("{who} waits in {what} (operation {pc}): {why}; {last}"), sim.program.origin_text(agent, pc))
}

fn peer_message(sim: &Sim<'_, impl Recorder>, channel: ChannelId) -> String {
    let c = &sim.program.channels[channel.0 as usize];
    let (sent, taken) = sim.fifos.progress(FifoId(channel.0));
    let sender = name(sim, c.sender);
    if wait(sim, c.sender) == Wait::Finished {
        format!("{sender} has finished after {sent} sends in direction {}, {taken} received", c.sender_direction)
    } else {
        format!("{sender} has not sent message {} in direction {}", taken + 1, c.sender_direction)
    }
}

fn hint(sim: &Sim<'_, impl Recorder>, blocked: &[AgentId], cyclic: bool) -> String {
    let waits = |f: fn(&Wait) -> bool| blocked.iter().filter(|a| f(&wait(sim, **a))).count();
    let receiving = waits(|w| matches!(w, Wait::Message(_) | Wait::AnyMessage));
    let sending = waits(|w| matches!(w, Wait::Credit(_)));
    if cyclic && sending == 0 {
        "every agent of the cycle receives before it sends; post the send first".into()
    } else if sending > 0 {
        "a queue on the cycle is full; receive earlier or raise n_slots".into()
    } else if receiving > 0 {
        "a receive has no matching send; compare the directions and counts on both sides".into()
    } else {
        "compare the signals and waits of the agents listed".into()
    }
}
