//! The reader.

use super::admit::admit;
use super::attributes::Lines;
use super::facts::Facts;
use ahbm_findings::Diagnostic;
use ahbm_plan::blocks::{Action, Block, Dep, Places, Precopy, Rank, Slot, Step};
use ahbm_plan::{Budget, Goal, Limit, Plan, Protocol, Space};
use roxmltree::{Document, Node, ParsingOptions};
use std::sync::Arc;

/// Findings after which nothing more is read.
const MAX_FINDINGS: usize = 50;
/// Channel numbers are below this.
const MAX_CHANNELS: u64 = 1 << 16;

/// Attributes of a step that the executor reads, whatever its type.
const STEP: [&str; 9] = ["s", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"];

/// The plan in a file, and what the file says besides.
pub(super) fn read(bytes: &[u8], file: &str, budget: &Budget) -> Result<(Plan, Facts), Vec<Diagnostic>> {
    let one = |error: Diagnostic| vec![error];
    let text = admit(bytes, file, budget).map_err(one)?;
    let options = ParsingOptions { allow_dtd: false, nodes_limit: u32::MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        let at = format!("{file}:{}", error.pos().row);
        one(Diagnostic::new("AHBM-F110", format!("not an XML document: {error}")).site("plan", at))
    })?;
    let reader = Reader { lines: Lines::new(text, file), budget, facts: Facts::default() };
    reader.algo(document.root_element(), file)
}

struct Reader<'a> {
    lines: Lines,
    budget: &'a Budget,
    facts: Facts,
}

impl Reader<'_> {
    fn algo(mut self, node: Node<'_, '_>, file: &str) -> Result<(Plan, Facts), Vec<Diagnostic>> {
        let one = |error: Diagnostic| vec![error];
        let header = self.header(node).map_err(one)?;
        let mut ranks: Vec<Option<Rank>> = Vec::new();
        ranks.resize_with(header.ngpus as usize, || None);
        let mut findings = Vec::new();
        for child in node.children().filter(Node::is_element) {
            match self.gpu(child) {
                Ok((id, rank)) => match ranks.get_mut(id as usize) {
                    Some(slot @ None) => *slot = Some(rank),
                    _ => findings.push(self.lines.finding(
                        "AHBM-F114",
                        self.lines.of(child),
                        format!("rank {id} appears twice or is not below ngpus={}", header.ngpus),
                    )),
                },
                Err(error) => findings.push(error),
            }
            if findings.len() >= MAX_FINDINGS {
                break;
            }
        }
        if findings.is_empty()
            && let Some(rank) = ranks.iter().position(Option::is_none)
        {
            let message = format!("ngpus={} but there is no <gpu id=\"{rank}\">", header.ngpus);
            findings.push(self.lines.finding("AHBM-F114", self.lines.of(node), message));
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        let ranks: Vec<Rank> = ranks.into_iter().flatten().collect();
        let declared = ranks.iter().map(|r| r.declared[0].max(r.declared[1])).max().unwrap_or(0);
        let used = ranks.iter().flat_map(|r| &r.blocks).map(|b| b.channel + 1).max().unwrap_or(1);
        let plan = Plan {
            name: header.name,
            file: Arc::from(file),
            places: Places::Lines(self.facts.line),
            goal: header.goal,
            in_place: header.in_place,
            out_of_place: header.out_of_place,
            protocol: header.protocol,
            channels: header.channels.max(used),
            chunks: header.chunks.unwrap_or(declared).max(1),
            min_bytes: header.min_bytes,
            max_bytes: header.max_bytes,
            ranks,
            relays: 0,
            warnings: Vec::new(),
        };
        plan.verify(self.budget)?;
        Ok((plan, self.facts))
    }

    fn header(&mut self, node: Node<'_, '_>) -> Result<Header, Diagnostic> {
        let line = self.lines.of(node);
        self.facts.line = line;
        if node.tag_name().name() != "algo" {
            let found = node.tag_name().name();
            return Err(self.lines.finding("AHBM-F111", line, format!("the root element is <{found}>, not <algo>")));
        }
        let mut header = Header::default();
        let (mut ngpus, mut in_place, mut out_of_place, mut coll, mut channels) = (None, None, None, None, None);
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            self.budget.check(Limit::StringBytes, value.len() as u64)?;
            match name {
                "name" => header.name = value.into(),
                "proto" => match Protocol::parse(value) {
                    Some(protocol) => {
                        header.protocol = protocol;
                        self.facts.protocol = (value != protocol.name()).then(|| value.into());
                    }
                    None => return Err(self.lines.unusable(node, name, value, "expected Simple, LL or LL128")),
                },
                "nchannels" => channels = Some(self.lines.count(node, name, value, MAX_CHANNELS)? as u32),
                "nchunksperloop" => {
                    header.chunks = Some(self.lines.count(node, name, value, u32::MAX.into())? as u32);
                }
                "ngpus" => ngpus = Some(self.lines.count(node, name, value, u64::MAX)?),
                "coll" => coll = Some(value),
                "inplace" => in_place = Some(self.lines.flag(node, name, value)?),
                "outofplace" => out_of_place = Some(self.lines.flag(node, name, value)?),
                "minBytes" => header.min_bytes = Some(self.lines.count(node, name, value, u64::MAX)?),
                "maxBytes" => header.max_bytes = Some(self.lines.count(node, name, value, u64::MAX)?),
                // The launch decides both.
                "nthreads" | "redop" => {}
                _ => self.facts.unknown(node, name, || line),
            }
        }
        let children = node.children().filter(Node::is_element).count() as u64;
        let ngpus = ngpus.unwrap_or(children);
        self.budget.check(Limit::Ranks, ngpus)?;
        if ngpus == 0 || ngpus > children {
            let message = format!("ngpus={ngpus}, but the file has {children} <gpu> elements");
            return Err(self.lines.finding("AHBM-F114", line, message));
        }
        header.ngpus = ngpus as u32;
        header.channels = channels.unwrap_or(1);
        header.in_place = in_place.unwrap_or(false);
        header.out_of_place = out_of_place.unwrap_or(!header.in_place);
        header.goal = Goal::parse(coll.unwrap_or("custom"));
        self.facts.coll = coll.unwrap_or_default().into();
        self.facts.missing = [
            ("proto", !node.has_attribute("proto")),
            ("ngpus", !node.has_attribute("ngpus")),
            ("coll", coll.is_none()),
            ("nchannels", channels.is_none()),
            ("nchunksperloop", header.chunks.is_none()),
            ("inplace", in_place.is_none()),
            ("outofplace", out_of_place.is_none()),
            ("minBytes", header.min_bytes.is_none()),
            ("maxBytes", header.max_bytes.is_none()),
        ]
        .into_iter()
        .filter_map(|(name, missing)| missing.then_some(name))
        .collect();
        Ok(header)
    }

    fn gpu(&mut self, node: Node<'_, '_>) -> Result<(u32, Rank), Diagnostic> {
        self.expect(node, &["gpu"])?;
        let (mut id, mut rank) = (None, Rank::default());
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            let chunks = |most: u32| self.lines.count(node, name, value, most.into()).map(|n| n as u32);
            match name {
                "id" => id = Some(chunks(u32::MAX)?),
                "i_chunks" => rank.declared[0] = chunks(u32::MAX)?,
                "o_chunks" => rank.declared[1] = chunks(u32::MAX)?,
                "s_chunks" => rank.declared[2] = chunks(u32::MAX)?,
                _ => {
                    let line = self.lines.of(node);
                    self.facts.unknown(node, name, || line);
                }
            }
        }
        let id = id.ok_or_else(|| self.lines.missing(node, "id"))?;
        self.facts.lacks(node, &["i_chunks", "o_chunks", "s_chunks"], self.lines.of(node));
        let mut blocks: Vec<(u32, Block)> = Vec::new();
        for child in node.children().filter(Node::is_element) {
            match child.tag_name().name() {
                "copy" => {
                    let copy = self.copy(child)?;
                    let list = if blocks.is_empty() { &mut rank.before } else { &mut rank.after };
                    list.push(copy);
                }
                _ => blocks.push(self.block(child)?),
            }
        }
        blocks.sort_by_key(|(id, _)| *id);
        for (position, (found, block)) in blocks.iter().enumerate() {
            if *found != position as u32 {
                let message = format!("rank {id} has no thread block {position}, or two of the same number");
                return Err(self.lines.finding("AHBM-F114", block.line, message));
            }
        }
        rank.blocks = blocks.into_iter().map(|(_, block)| block).collect();
        Ok((id, rank))
    }

    fn copy(&mut self, node: Node<'_, '_>) -> Result<Precopy, Diagnostic> {
        let line = self.lines.of(node);
        let (mut input, mut output, mut count) = (None, None, 1);
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            let number = || self.lines.count(node, name, value, u32::MAX.into()).map(|n| n as u32);
            match name {
                "i_off" => input = Some(number()?),
                "o_off" => output = Some(number()?),
                "cnt" => count = number()?,
                _ => self.facts.unknown(node, name, || line),
            }
        }
        let input = input.ok_or_else(|| self.lines.missing(node, "i_off"))?;
        let output = output.ok_or_else(|| self.lines.missing(node, "o_off"))?;
        Ok(Precopy { input, output, count, line })
    }

    fn block(&mut self, node: Node<'_, '_>) -> Result<(u32, Block), Diagnostic> {
        self.expect(node, &["tb"])?;
        let line = self.lines.of(node);
        let mut block = Block { line, ..Block::default() };
        let mut id = None;
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            match name {
                "id" => id = Some(self.lines.count(node, name, value, u32::MAX.into())? as u32),
                "send" => block.send = self.lines.optional(node, name, value, u32::MAX)?,
                "recv" => block.recv = self.lines.optional(node, name, value, u32::MAX)?,
                "chan" => {
                    let channel = self.lines.optional(node, name, value, MAX_CHANNELS as u32 - 1)?;
                    if channel.is_none() {
                        self.facts.channel.get_or_insert(line);
                    }
                    block.channel = channel.unwrap_or_default();
                }
                _ => self.facts.unknown(node, name, || line),
            }
        }
        let id = id.ok_or_else(|| self.lines.missing(node, "id"))?;
        self.facts.lacks(node, &["send", "recv", "chan"], line);
        block.steps.reserve_exact(node.children().filter(Node::is_element).count());
        for child in node.children().filter(Node::is_element) {
            let step = self.step(child, block.steps.len() as u32)?;
            block.steps.push(step);
        }
        Ok((id, block))
    }

    fn step(&mut self, node: Node<'_, '_>, position: u32) -> Result<Step, Diagnostic> {
        self.expect(node, &["step", "op"])?;
        let line = self.lines.of(node);
        let (mut action, mut src, mut dst) = (None, Place::default(), Place::default());
        let (mut chunks, mut block, mut dep, mut posts, mut number) = (Ok(1), None, None, false, None);
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            match name {
                "s" | "step" => number = self.lines.optional(node, name, value, u32::MAX)?,
                "type" => action = Some(self.action(node, value)?),
                "srcbuf" => src.space = Some(self.space(node, name, value)?),
                "srcoff" => src.chunk = self.lines.optional(node, name, value, u32::MAX)?,
                "dstbuf" => dst.space = Some(self.space(node, name, value)?),
                "dstoff" => dst.chunk = self.lines.optional(node, name, value, u32::MAX)?,
                "buf" => {
                    let space = Some(self.space(node, name, value)?);
                    (src.space, dst.space) = (space, space);
                }
                "off" => {
                    let chunk = self.lines.optional(node, name, value, u32::MAX)?;
                    (src.chunk, dst.chunk) = (chunk, chunk);
                }
                "cnt" => chunks = self.lines.optional(node, name, value, u32::MAX)?.ok_or(value),
                "depid" => block = self.lines.optional(node, name, value, u32::MAX)?,
                "deps" => dep = self.lines.optional(node, name, value, u32::MAX)?,
                "hasdep" => posts = self.lines.flag(node, name, value)?,
                _ => self.facts.unknown(node, name, || line),
            }
        }
        let action = action.ok_or_else(|| self.lines.missing(node, "type"))?;
        let count = match chunks {
            Ok(count) => count,
            Err(_) if action == Action::Nop => 0,
            Err(value) => {
                return Err(self.lines.unusable(node, "cnt", value, "a step moves no negative number of chunks"));
            }
        };
        if number.is_some_and(|n| n != position) && self.facts.numbering.is_none() {
            self.facts.numbering = Some(line);
        }
        if node.tag_name().name() == "step" {
            self.facts.lacks(node, &STEP, line);
        }
        let wait = match (block, dep) {
            (None, _) => None,
            (Some(block), Some(step)) => Some(Dep { block, step }),
            (Some(_), None) => return Err(self.lines.missing(node, "deps")),
        };
        // A step may reduce in place and say so only once.
        if action.reads() && action.writes() && src.chunk.is_none() {
            src = dst;
        }
        let slot = |place: Place, used: bool, names: [&str; 2]| match (place.space, place.chunk) {
            (Some(space), Some(chunk)) => Ok(Slot { space, chunk }),
            (None, _) if used => Err(self.lines.missing(node, names[0])),
            (_, None) if used => Err(self.lines.missing(node, names[1])),
            (space, chunk) => Ok(Slot { space: space.unwrap_or(Space::Input), chunk: chunk.unwrap_or(0) }),
        };
        Ok(Step {
            action,
            src: slot(src, action.reads(), ["srcbuf", "srcoff"])?,
            dst: slot(dst, action.writes(), ["dstbuf", "dstoff"])?,
            count,
            wait,
            posts,
            line,
        })
    }

    fn action(&self, node: Node<'_, '_>, value: &str) -> Result<Action, Diagnostic> {
        Action::ALL.into_iter().find(|a| a.name() == value).ok_or_else(|| {
            let shown: String = value.chars().take(40).collect();
            let message = format!("steps of type {shown:?} are not supported");
            let names = Action::ALL.map(Action::name).join(" ");
            self.lines.finding("AHBM-U201", self.lines.of(node), message).hint(format!("supported: {names}"))
        })
    }

    fn space(&self, node: Node<'_, '_>, name: &str, value: &str) -> Result<Space, Diagnostic> {
        match value {
            "i" => Ok(Space::Input),
            "o" => Ok(Space::Output),
            "s" => Ok(Space::Scratch),
            _ => Err(self.lines.unusable(node, name, value, "expected i, o or s")),
        }
    }

    fn expect(&self, node: Node<'_, '_>, names: &[&str]) -> Result<(), Diagnostic> {
        let found = node.tag_name().name();
        if names.contains(&found) {
            return Ok(());
        }
        let shown: String = found.chars().take(40).collect();
        let message = format!("<{shown}> where <{}> is expected", names.join("> or <"));
        Err(self.lines.finding("AHBM-F113", self.lines.of(node), message))
    }
}

struct Header {
    name: String,
    goal: Goal,
    in_place: bool,
    out_of_place: bool,
    protocol: Protocol,
    channels: u32,
    chunks: Option<u32>,
    min_bytes: Option<u64>,
    max_bytes: Option<u64>,
    ngpus: u32,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            name: String::new(),
            goal: Goal::Custom,
            in_place: false,
            out_of_place: true,
            protocol: Protocol::Simple,
            channels: 1,
            chunks: None,
            min_bytes: None,
            max_bytes: None,
            ngpus: 0,
        }
    }
}

/// A location that may be left open.
#[derive(Clone, Copy, Default)]
struct Place {
    space: Option<Space>,
    chunk: Option<u32>,
}
