//! References to chunks: what the statements of a MSCCLang program work with.

use super::msccl::{MscclRecorder, Ref, outside, parts};
use super::msccl_arguments::{bind, number, outdated, refuse};
use crate::errors;
use ahbm_dsl::msccl::record::{OUTPUT, Place};
use ahbm_dsl::msccl::{Kind, Transfer};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

#[pymethods]
impl Ref {
    /// The rank.
    #[getter]
    fn rank(&self) -> u32 {
        self.place.rank
    }

    /// The buffer: `Buffer.input`, `Buffer.output`, or the name of a slice of scratch.
    #[getter]
    fn buffer(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.program.get().name(py, self.place.buffer)
    }

    /// The first slot.
    #[getter]
    fn index(&self) -> u32 {
        self.place.index
    }

    /// The number of slots.
    #[getter]
    fn size(&self) -> u32 {
        self.place.size
    }

    /// The program.
    #[getter]
    fn prog(&self, py: Python<'_>) -> Py<MscclRecorder> {
        self.program.clone_ref(py)
    }

    /// Copies the chunks to rank `dst`, and returns a reference to the copy.
    ///
    /// Without `buffer` and `index` they go to the same place; without `index`, to the end of a slice of scratch, which
    /// is made on first use. A copy of a chunk to its own place does nothing. `sendtb`, `recvtb` and `ch` choose thread
    /// blocks and the channel.
    #[pyo3(signature = (*args, **kwargs), text_signature = "($self, dst, buffer=None, index=-1, sendtb=-1, recvtb=-1, ch=-1)")]
    fn copy<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<Bound<'py, Self>>> {
        let py = slf.py();
        let names = ["dst", "buffer", "index", "sendtb", "recvtb", "ch"];
        let [dst, buffer, index, sendtb, recvtb, ch] = bind("Ref.copy", names, 1, args, kwargs)?;
        let Ref { program, place: src } = slf.get();
        let this = program.get();
        let rank = this.rank(py, number(dst.as_ref(), 0, "dst")?)?;
        let mut at = number(index.as_ref(), -1, "index")?;
        let buffer = match buffer.filter(|buffer| !buffer.is_none()) {
            Some(buffer) => this.id(&buffer)?,
            None if at == -1 => {
                at = src.index.into();
                src.buffer
            }
            None if this.quirks(py)? => this.id(py.None().bind(py))?,
            None => {
                let message = format!("copy() to index {at} of no buffer: name the buffer too");
                return Err(refuse(py, Kind::Type, "AHBM-A202", message));
            }
        };
        let how = transfer(sendtb.as_ref(), recvtb.as_ref(), ch.as_ref())?;
        if !this.link(py, src.rank, rank)? {
            return Err(refuse(py, Kind::Assertion, "AHBM-A205", format!("No link from {} to {rank}", src.rank)));
        }
        if at == -1 && buffer > OUTPUT {
            at = this.read(py, |recording| recording.length(rank, buffer))?.unwrap_or(0).into();
        }
        if at < 0 {
            return Err(outside(py, at));
        }
        // Upstream maps the place at the sender, then at the receiver.
        let (mapped, at) = this.mapped(py, src.rank, buffer, at)?;
        let (mapped, at) = this.mapped(py, rank, mapped, at)?;
        let index = u32::try_from(at).map_err(|_| outside(py, at))?;
        let to = Place { rank, buffer: mapped, index, size: src.size };
        if to == *src {
            return Ok((!this.quirks(py)?).then(|| slf.clone()));
        }
        this.record(py, |recording, origin| {
            recording.ensure_slice(rank, buffer);
            recording.ensure_slice(rank, mapped);
            recording.copy(*src, to, &Transfer { origin, ..how })
        })?;
        Bound::new(py, Self { program: program.clone_ref(py), place: to }).map(Some)
    }

    /// Reduces the chunks of `other` into these, and returns these.
    #[pyo3(signature = (*args, **kwargs), text_signature = "($self, other_chunkref, sendtb=-1, recvtb=-1, ch=-1)")]
    fn reduce<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        let names = ["other_chunkref", "sendtb", "recvtb", "ch"];
        let [other, sendtb, recvtb, ch] = bind("Ref.reduce", names, 1, args, kwargs)?;
        let Ref { program, place: dst } = slf.get();
        let other = slf.get().other(py, other.as_ref())?;
        let src = other.get().place;
        let how = transfer(sendtb.as_ref(), recvtb.as_ref(), ch.as_ref())?;
        let this = program.get();
        if !this.link(py, src.rank, dst.rank)? {
            return Err(refuse(py, Kind::Assertion, "AHBM-A205", format!("No link from {} to {}", src.rank, dst.rank)));
        }
        this.record(py, |recording, origin| recording.reduce(*dst, src, &Transfer { origin, ..how }))?;
        Ok(slf.clone())
    }

    /// `num` references to equal parts. Raises AHBM-A206 where the slots cannot be divided.
    fn split(&self, py: Python<'_>, num: &Bound<'_, PyAny>) -> PyResult<Vec<Ref>> {
        let Place { size, index, .. } = self.place;
        let num = number(Some(num), 1, "num")?;
        match u32::try_from(num) {
            Ok(num) if num > 0 && size.is_multiple_of(num) => {
                let size = size / num;
                let part = |i| Place { index: index + i * size, size, ..self.place };
                Ok((0..num).map(|i| Self { program: self.program.clone_ref(py), place: part(i) }).collect())
            }
            _ => {
                let message = format!("Trying to split a chunk of {size} elements into {num} parts");
                Err(refuse(py, Kind::Assertion, "AHBM-A206", message))
            }
        }
    }

    /// A reference to everything from the first slot of the two to the last. Raises AHBM-A206 for two ranks or buffers.
    fn group(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Ref> {
        let other = self.other(py, Some(other))?;
        let (a, b) = (self.place, other.get().place);
        if (a.rank, a.buffer) != (b.rank, b.buffer) {
            let message = if a.rank == b.rank {
                "Trying to concatenate chunks in two buffers".to_owned()
            } else {
                format!("Trying to concatenate chunks on ranks {} and {}", a.rank, b.rank)
            };
            return Err(refuse(py, Kind::Assertion, "AHBM-A206", message));
        }
        let index = a.index.min(b.index);
        let end = (a.index + a.size).max(b.index + b.size);
        let place = Place { index, size: end - index, ..a };
        Ok(Self { program: self.program.clone_ref(py), place })
    }

    /// Where the chunk in a slot of the reference was in the input.
    #[pyo3(signature = (index=0))]
    fn get_origin_index(&self, py: Python<'_>, index: i64) -> PyResult<i64> {
        Ok(self.chunk(py, index)?.1)
    }

    /// The rank whose input the chunk in a slot of the reference was.
    #[pyo3(signature = (index=0))]
    fn get_origin_rank(&self, py: Python<'_>, index: i64) -> PyResult<i64> {
        Ok(self.chunk(py, index)?.0)
    }

    /// Where the chunk in a slot of the reference has to end.
    #[pyo3(signature = (index=0))]
    fn get_dst_index(&self, py: Python<'_>, index: i64) -> PyResult<i64> {
        Ok(self.chunk(py, index)?.3)
    }

    /// The rank at which the chunk in a slot of the reference has to end; -1: all.
    #[pyo3(signature = (index=0))]
    fn get_dst_rank(&self, py: Python<'_>, index: i64) -> PyResult<i64> {
        Ok(self.chunk(py, index)?.2)
    }

    /// Prints the chunk in a slot of the reference.
    #[pyo3(signature = (index=0))]
    fn print_chunk_info(&self, py: Python<'_>, index: i64) -> PyResult<()> {
        let Place { rank, buffer, index: first, .. } = self.place;
        let name = self.program.get().name(py, buffer)?;
        let at = i64::from(first).saturating_add(index);
        py.import("ahbm.dsl.msccl.program")?.getattr("print_chunk")?.call1((&self.program, rank, name, at))?;
        Ok(())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| {
            let other = other.get();
            self.place == other.place && self.program.is(&other.program)
        })
    }

    fn __hash__(&self) -> u64 {
        let Place { rank, buffer, index, size } = self.place;
        [rank, buffer, index, size]
            .iter()
            .fold(0, |hash: u64, &part| hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(part.into()))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let Place { rank, index, size, .. } = self.place;
        let buffer = self.buffer(py)?.bind(py).str()?.to_string();
        Ok(format!("Ref(Buffer:{buffer}, Index:{index}, Size:{size}, Rank:{rank})"))
    }

    /// Only asked for what there is not.
    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        let message = format!("'Ref' object has no attribute '{name}'");
        // What looks for protocols is told plainly.
        Err(if name.starts_with("__") { PyAttributeError::new_err(message) } else { outdated(py, message) })
    }
}

impl Ref {
    /// Another reference into the same program.
    fn other<'py>(&self, py: Python<'py>, other: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, Ref>> {
        let none = py.None().into_bound(py);
        let other = other.unwrap_or(&none);
        let Ok(found) = other.cast::<Self>() else {
            // What is no reference fails where upstream looks for its rank.
            return Err(match other.getattr("rank") {
                Err(error) if errors::is_typed(py, &error) => error,
                Err(error) => outdated(py, error.value(py).to_string()),
                Ok(_) => refuse(py, Kind::Type, "AHBM-A202", "a reference to chunks is needed"),
            });
        };
        if !found.get().program.is(&self.program) {
            return Err(refuse(py, Kind::Value, "AHBM-A202", "a reference to chunks of another program"));
        }
        Ok(found.clone())
    }

    fn chunk(&self, py: Python<'_>, index: i64) -> PyResult<(i64, i64, i64, i64)> {
        let Place { rank, buffer, index: first, .. } = self.place;
        let at = i64::from(first).saturating_add(index);
        let slot = u32::try_from(at).map_err(|_| outside(py, at))?;
        let found = self.program.get().read(py, |recording| {
            let value = recording.value(rank, buffer, slot)?;
            if value.is_none() { Some(None) } else { Some(parts(recording, value)) }
        })?;
        match found {
            None => Err(outside(py, at)),
            Some(Some((None, chunks))) if chunks.len() == 1 => Ok(chunks[0]),
            Some(None) => {
                Err(refuse(py, Kind::Attribute, "AHBM-A204", format!("slot {at} of rank {rank} holds no chunk")))
            }
            Some(_) => {
                Err(refuse(py, Kind::Attribute, "AHBM-A204", "'ReduceChunk' object has no origin and no destination"))
            }
        }
    }
}

fn transfer(
    sendtb: Option<&Bound<'_, PyAny>>,
    recvtb: Option<&Bound<'_, PyAny>>,
    ch: Option<&Bound<'_, PyAny>>,
) -> PyResult<Transfer> {
    let small = |value, name| -> PyResult<i64> {
        let number = number(value, -1, name)?;
        if (-1..1 << 24).contains(&number) {
            return Ok(number);
        }
        let message = format!("{name}={number}: a number from -1 to 16777215 is needed");
        let Some(value) = value else { return Ok(-1) };
        Err(refuse(value.py(), Kind::Value, "AHBM-A202", message))
    };
    Ok(Transfer {
        send_tb: small(sendtb, "sendtb")?,
        recv_tb: small(recvtb, "recvtb")?,
        channel: small(ch, "ch")?,
        origin: 0,
    })
}
