//! The writer: files that the current executor loads.

use super::facts::Facts;
use ahbm_plan::blocks::{Action, Precopy, Step};
use ahbm_plan::{Goal, Plan};
use std::fmt::Write;

/// Whose spelling a document has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect<'a> {
    /// The executor's.
    Executor,
    /// That of the compiler of MSCCLang, whose programs name their collective. `sizes`: with the attributes without which
    /// the current executor loads nothing.
    Compiler {
        /// Name of the collective.
        collective: &'a str,
        /// With `outofplace`, `minBytes` and `maxBytes`.
        sizes: bool,
    },
}

impl Dialect<'_> {
    /// The collective as a document names it, before quoting.
    fn collective(self, plan: &Plan) -> String {
        match self {
            Self::Executor => spelling(plan.goal),
            Self::Compiler { collective, .. } => collective.into(),
        }
    }

    /// Whether a document has the attributes [`SIZES`].
    const fn has_sizes(self) -> bool {
        !matches!(self, Self::Compiler { sizes: false, .. })
    }

    /// What a document states besides the plan.
    pub(super) fn facts(self, plan: &Plan) -> Facts {
        let missing = if self.has_sizes() { Vec::new() } else { SIZES.to_vec() };
        Facts { missing, coll: self.collective(plan), ..Facts::default() }
    }
}

/// The attributes that the first compiler of MSCCLang does not write.
const SIZES: [&str; 3] = ["outofplace", "minBytes", "maxBytes"];

/// A plan as MSCCL-IR XML with every attribute that the executor wants: without limits of its own the plan is
/// for every size.
pub fn write(plan: &Plan) -> String {
    write_as(plan, Dialect::Executor)
}

/// A plan as MSCCL-IR XML in a dialect.
pub fn write_as(plan: &Plan, dialect: Dialect<'_>) -> String {
    let mut out = String::with_capacity(256 + plan.steps() as usize * 136);
    // Writing to a String cannot fail.
    let _ = document(&mut out, plan, dialect);
    if dialect != Dialect::Executor {
        out.pop();
    }
    out
}

fn document(out: &mut String, plan: &Plan, dialect: Dialect<'_>) -> std::fmt::Result {
    let collective = escaped(&dialect.collective(plan));
    write!(
        out,
        "<algo name=\"{}\" proto=\"{}\" nchannels=\"{}\" nchunksperloop=\"{}\" ngpus=\"{}\" coll=\"{collective}\" \
         inplace=\"{}\"",
        escaped(&plan.name),
        plan.protocol.name(),
        plan.channels,
        plan.chunks,
        plan.ranks.len(),
        u8::from(plan.in_place),
    )?;
    if dialect.has_sizes() {
        let (least, most) = (plan.min_bytes.unwrap_or(0), plan.max_bytes.unwrap_or(0));
        let values = [u8::from(plan.out_of_place).into(), least, most];
        for (name, value) in SIZES.iter().zip(values) {
            write!(out, " {name}=\"{value}\"")?;
        }
    }
    out.push_str(">\n");
    for (id, rank) in plan.ranks.iter().enumerate() {
        let [i, o, s] = rank.declared;
        write!(out, "  <gpu id=\"{id}\" i_chunks=\"{i}\" o_chunks=\"{o}\" s_chunks=\"{s}\"")?;
        if dialect != Dialect::Executor && rank.blocks.is_empty() {
            out.push_str("/>\n");
            continue;
        }
        out.push_str(">\n");
        copies(out, &rank.before)?;
        for (tb, block) in rank.blocks.iter().enumerate() {
            let peer = |p: Option<u32>| p.map_or(-1, i64::from);
            let (send, recv, chan) = (peer(block.send), peer(block.recv), block.channel);
            writeln!(out, "    <tb id=\"{tb}\" send=\"{send}\" recv=\"{recv}\" chan=\"{chan}\">")?;
            for (s, step) in block.steps.iter().enumerate() {
                write_step(out, s, step, dialect)?;
            }
            out.push_str("    </tb>\n");
        }
        copies(out, &rank.after)?;
        out.push_str("  </gpu>\n");
    }
    out.push_str("</algo>\n");
    Ok(())
}

fn copies(out: &mut String, list: &[Precopy]) -> std::fmt::Result {
    list.iter()
        .try_for_each(|c| writeln!(out, "    <copy i_off=\"{}\" o_off=\"{}\" cnt=\"{}\"/>", c.input, c.output, c.count))
}

fn write_step(out: &mut String, s: usize, step: &Step, dialect: Dialect<'_>) -> std::fmt::Result {
    let (depid, deps) = step.wait.map_or((-1, -1), |d| (i64::from(d.block), i64::from(d.step)));
    let none = step.action == Action::Nop && dialect != Dialect::Executor;
    let offset = |chunk: u32| if none { -1 } else { i64::from(chunk) };
    writeln!(
        out,
        "      <step s=\"{s}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" dstoff=\"{}\" cnt=\"{}\" \
         depid=\"{depid}\" deps=\"{deps}\" hasdep=\"{}\"/>",
        step.action.name(),
        step.src.space.name(),
        offset(step.src.chunk),
        step.dst.space.name(),
        offset(step.dst.chunk),
        step.count,
        u8::from(step.posts),
    )
}

/// The executor's name of a collective.
fn spelling(goal: Goal) -> String {
    match goal {
        Goal::Custom => "custom".into(),
        other => other.name().replace('_', ""),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => {
                let _ = write!(out, "&#{};", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}
