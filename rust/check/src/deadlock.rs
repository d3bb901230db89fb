//! Deadlock reports: who waits for whom.

use crate::schedule::{Schedule, Wait};
use ahbm_findings::Diagnostic;
use ahbm_program::{AgentId, ChannelId, Control, OpKind};

/// Agents listed in a report before it only counts the rest.
const LISTED: usize = 16;

/// Names the wait-for cycle, or the chain that ends at a finished agent.
pub(crate) fn report(run: &Schedule<'_>) -> Diagnostic {
    let stuck = (0..run.waits.len() as u32).map(AgentId).filter(|&a| run.waits[a.0 as usize] != Wait::Finished);
    let chain = chain(run, stuck.clone());
    let cyclic = chain.len() > 1 && chain.first() == chain.last();
    let mut path = chain.iter().take(LISTED).map(|&a| run.subject.name(a)).collect::<Vec<_>>().join(" -> ");
    if chain.len() > LISTED {
        path += &format!(" -> ... ({} in all)", chain.len());
    }
    let (kind, agents) = (if cyclic { "cycle" } else { "chain" }, run.waits.len());
    let what = format!("deadlock: {} of {agents} thread blocks wait; {kind}: {path}", stuck.count());
    let mut finding = Diagnostic::new("AHBM-D201", what);
    let shown = &chain[..chain.len() - usize::from(cyclic)];
    for &agent in shown.iter().take(LISTED) {
        finding = describe(run, agent, finding);
    }
    let full = shown.iter().any(|a| matches!(run.waits[a.0 as usize], Wait::Slot(_)));
    finding.hint(if full {
        "a queue on the way is full; receive earlier or allow more slots"
    } else if cyclic {
        "every thread block of the cycle waits before it does what the next one waits for; reorder their steps"
    } else {
        "the last of the chain never does what the others wait for"
    })
}

/// Follows the wait-for relation until it repeats or ends; the longest path when nothing repeats.
fn chain(run: &Schedule<'_>, stuck: impl Iterator<Item = AgentId>) -> Vec<AgentId> {
    let mut longest = Vec::new();
    let mut visited = vec![false; run.waits.len()];
    for first in stuck {
        let mut path: Vec<AgentId> = Vec::new();
        let mut at = Some(first);
        while let Some(agent) = at {
            if std::mem::replace(&mut visited[agent.0 as usize], true) {
                if let Some(start) = path.iter().position(|&p| p == agent) {
                    let mut cycle = path.split_off(start);
                    cycle.push(agent);
                    return cycle;
                }
                break;
            }
            path.push(agent);
            at = waits_for(run, agent);
        }
        if path.len() > longest.len() {
            longest = path;
        }
    }
    longest
}

fn waits_for(run: &Schedule<'_>, agent: AgentId) -> Option<AgentId> {
    let channels = &run.subject.program.channels;
    let sender = |channel: &ChannelId| channels[channel.0 as usize].sender;
    match run.waits[agent.0 as usize] {
        Wait::Slot(channel) => Some(channels[channel.0 as usize].receiver),
        Wait::Message(channel) => Some(sender(&channel)),
        Wait::AnyMessage => {
            let waiting = |other: &AgentId| run.waits[other.0 as usize] != Wait::Finished;
            let inbound = run.inbound(agent);
            inbound.iter().map(sender).find(waiting).or_else(|| inbound.first().map(sender))
        }
        Wait::Launch => (0..run.waits.len() as u32).map(AgentId).find(|&other| {
            run.same_launch(agent, other) && !matches!(run.waits[other.0 as usize], Wait::Launch | Wait::Finished)
        }),
        Wait::Counter(id) => still_to_do(
            run,
            agent,
            |kind| matches!(kind, OpKind::Control(Control::Signal { counter, .. }) if *counter == id),
        ),
        Wait::Barrier(id) => still_to_do(
            run,
            agent,
            |kind| matches!(kind, OpKind::Control(Control::Barrier { id: other }) if *other == id),
        ),
        Wait::Nothing | Wait::Finished => None,
    }
}

/// The first other agent that has yet to do something and is not waiting to do just that.
fn still_to_do(run: &Schedule<'_>, me: AgentId, wanted: impl Fn(&OpKind) -> bool) -> Option<AgentId> {
    (0..run.waits.len() as u32).map(AgentId).find(|&agent| {
        let at = run.next[agent.0 as usize] as usize;
        let there = matches!(run.waits[agent.0 as usize], Wait::Barrier(_))
            && run.waits[agent.0 as usize] == run.waits[me.0 as usize];
        let to_come = run.call[agent.0 as usize] + 1 < run.subject.calls;
        let ops = &run.subject.body(agent, run.call[agent.0 as usize]).ops;
        agent != me
            && !there
            && (ops.iter().skip(at).any(|op| wanted(&op.kind)) || to_come && ops.iter().any(|op| wanted(&op.kind)))
    })
}

fn describe(run: &Schedule<'_>, agent: AgentId, finding: Diagnostic) -> Diagnostic {
    let program = run.subject.program;
    let who = run.subject.name(agent);
    let op = run.next[agent.0 as usize] as usize;
    let progress = |channel: ChannelId| {
        let (sent, taken) = (run.sent[channel.0 as usize], run.taken(channel));
        format!("{sent} sent, {taken} received")
    };
    let why = match run.waits[agent.0 as usize] {
        Wait::Finished => {
            return finding.site(format!("{who} has finished"), program.origin_text(agent, op.saturating_sub(1)));
        }
        Wait::Slot(channel) => {
            let to = run.subject.name(program.channels[channel.0 as usize].receiver);
            format!("the queue to {to} is full: depth {}, {}", run.depth(channel), progress(channel))
        }
        Wait::Message(channel) => {
            let from = run.subject.name(program.channels[channel.0 as usize].sender);
            format!("nothing from {from}: {}", progress(channel))
        }
        Wait::AnyMessage => format!("nothing on any of {} queues", run.inbound(agent).len()),
        Wait::Launch => "the rank's other thread blocks have not ended this call".into(),
        Wait::Counter(id) => format!("the counter stands at {}", run.counter(agent, id)),
        Wait::Barrier(id) => {
            format!("{} of {} have arrived", run.at_barrier[id as usize].len(), program.barriers[id as usize])
        }
        Wait::Nothing => String::new(),
    };
    let number = run.call[agent.0 as usize];
    let program = run.subject.launch(number);
    let what = program.describe(agent, op);
    let call = if run.subject.calls > 1 { format!(" of call {}", number + 1) } else { String::new() };
    finding.site(format!("{who} waits in {what} (operation {op}{call}): {why}"), program.origin_text(agent, op))
}
