//! A program that runs alone.

use super::{Fold, Parties, Parts, traffic};
use crate::Timeline;
use crate::timing::{self, Cover, LOG, Options};
use ahbm_findings::Diagnostic;
use ahbm_machine::Machine;
use ahbm_program::Program;
use ahbm_program::job::{Share, assemble};
use log::debug;

/// Fewer operations are simulated before their agents are compared.
const MANY_OPS: u64 = 1 << 13;
/// Comparing agents costs about as much as so many operations of each.
const OPS_PER_AGENT: u64 = 64;
/// One rank of a class stands for at least so many.
const ALIKE: usize = 4;

/// Runs the timing pass. Where nothing is recorded ([`Options::record`], [`Options::detail`]), one of the ranks that do
/// the same may stand for all of them: the timeline is the same, but for the number of its events.
///
/// # Errors
/// `AHBM-D101` deadlock (with the wait-for cycle), `AHBM-B120` event budget exceeded, `AHBM-B121` budget of
/// pieces exceeded, `AHBM-B125` budget of links exceeded, and whatever the machine reports about a route that does not exist.
pub fn simulate(program: &Program, machine: &Machine, options: &Options) -> Result<Timeline, Diagnostic> {
    if pays(program, options) {
        match folded(program, machine, options) {
            Ok(timeline) => return Ok(timeline),
            Err(why) => debug!(target: LOG, "{}: every rank is simulated: {why}", program.name),
        }
    }
    timing::whole(program, machine, options)
}

/// Whether comparing agents may be quicker than simulating them all.
fn pays(program: &Program, options: &Options) -> bool {
    let ops = program.ops();
    let spans = options.record || options.detail > 0;
    // A budget is one of the whole run.
    let budget = options.max_events < Options::default().max_events;
    options.fold && !spans && !budget && ops >= MANY_OPS.max(OPS_PER_AGENT * program.agents.len() as u64)
}

/// The SIPs of a program, each with its agents, are the ranks of one launch.
struct Alone {
    ranks: u32,
}

impl Parties for Alone {
    fn graphs(&self) -> Vec<u32> {
        vec![0; self.ranks as usize]
    }

    fn launches(&self) -> u32 {
        1
    }

    fn parts(&self, _: u32) -> u32 {
        self.ranks
    }

    fn member(&self, _: u32, part: u32) -> (u32, u32) {
        (part, 0)
    }

    fn part(&self, rank: u32, _: u32) -> Option<(u32, u32)> {
        Some((0, rank))
    }

    fn is_message(&self, _: u32) -> bool {
        false
    }

    fn most(&self) -> usize {
        self.ranks as usize / ALIKE
    }
}

fn folded(program: &Program, machine: &Machine, options: &Options) -> Result<Timeline, &'static str> {
    if !program.duties.is_empty() {
        return Err("its agents wait for each other's ends");
    }
    let mut sips: Vec<u32> = program.agents.iter().map(|agent| machine.coord(agent.place).sip).collect();
    sips.sort_unstable();
    sips.dedup();
    let job = Alone { ranks: sips.len() as u32 };
    let share = [Share { program, home: &sips, there: &sips, sips: &sips }];
    let fold = Fold::new(&job, &share, machine)?;
    let mut small = assemble(&program.name, machine, &share, &Parts { job: &job, fold: &fold });
    // Nobody opens gates: all begin at once.
    small.program.duties.clear();
    let cover = Cover { towards: &small.towards, links: &fold.links };
    let found = timing::covered(&small.program, machine, options, cover, &fold.agents(0));
    let (timeline, tie) = found.map_err(|_| "it does not end")?;
    if let Some(tie) = tie {
        return Err(tie);
    }
    let (messages, bytes) = traffic(&share, |_| 1);
    Ok(Timeline { messages, bytes, ..timeline })
}
