//! Inside a cube: where things sit on the router grid, and the numbering of the cube's links.
//!
//! A cube's links in order: per PE NOC out, NOC in, HBM read, HBM write (each kind for all PEs); SRAM read,
//! SRAM write; NOC east/west pairs row by row; NOC south/north pairs column by column; UCIe outgoing
//! connections N, E, S, W; to the I/O chiplet, from the I/O chiplet.

use crate::{Heading, Ps, Rate};

/// Everything about a cube that routes and link names need.
#[derive(Debug, Clone)]
pub(crate) struct CubeLinks {
    pub(crate) pes: u32,
    pub(crate) pe_per_corner: u32,
    pub(crate) rows: u32,
    pub(crate) cols: u32,
    pub(crate) connections: u32,
    pub(crate) noc_out: Rate,
    pub(crate) noc_in: Rate,
    pub(crate) hbm: Rate,
    pub(crate) sram: Rate,
    pub(crate) noc: Rate,
    pub(crate) ucie: Rate,
    pub(crate) io: Rate,
    pub(crate) router_ps: Ps,
    pub(crate) wire_ps: Ps,
    pub(crate) crossing_ps: Ps,
    pub(crate) io_ps: Ps,
    pub(crate) access_ps: Ps,
}

/// A router: row, column.
pub(crate) type Router = (u32, u32);

/// A cube's link by what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CubeLink {
    NocOut(u32),
    NocIn(u32),
    HbmRead(u32),
    HbmWrite(u32),
    SramRead,
    SramWrite,
    /// From a router towards a heading.
    Noc(Router, Heading),
    /// Outgoing connection of a port.
    Ucie(Heading, u32),
    IoOut,
    IoIn,
}

impl CubeLinks {
    /// Number of links of one cube.
    pub(crate) fn links(&self) -> u32 {
        self.io_base() + 2
    }

    fn horizontal_base(&self) -> u32 {
        4 * self.pes + 2
    }

    fn vertical_base(&self) -> u32 {
        self.horizontal_base() + 2 * self.rows * (self.cols - 1)
    }

    fn ucie_base(&self) -> u32 {
        self.vertical_base() + 2 * self.cols * (self.rows - 1)
    }

    fn io_base(&self) -> u32 {
        self.ucie_base() + 4 * self.connections
    }

    /// Index of a link within the cube.
    pub(crate) fn index(&self, link: CubeLink) -> u32 {
        match link {
            CubeLink::NocOut(pe) => pe,
            CubeLink::NocIn(pe) => self.pes + pe,
            CubeLink::HbmRead(pe) => 2 * self.pes + pe,
            CubeLink::HbmWrite(pe) => 3 * self.pes + pe,
            CubeLink::SramRead => 4 * self.pes,
            CubeLink::SramWrite => 4 * self.pes + 1,
            CubeLink::Noc((row, col), heading) => match heading {
                Heading::E => self.horizontal_base() + (row * (self.cols - 1) + col) * 2,
                Heading::W => self.horizontal_base() + (row * (self.cols - 1) + col - 1) * 2 + 1,
                Heading::S => self.vertical_base() + (col * (self.rows - 1) + row) * 2,
                _ => self.vertical_base() + (col * (self.rows - 1) + row - 1) * 2 + 1,
            },
            CubeLink::Ucie(port, connection) => {
                let port = Heading::MESH.iter().position(|p| *p == port).unwrap_or(0) as u32;
                self.ucie_base() + port * self.connections + connection
            }
            CubeLink::IoOut => self.io_base(),
            CubeLink::IoIn => self.io_base() + 1,
        }
    }

    /// The link behind an index within the cube.
    pub(crate) fn at(&self, index: u32) -> CubeLink {
        let pes = self.pes;
        if index < 4 * pes {
            let pe = index % pes;
            return match index / pes {
                0 => CubeLink::NocOut(pe),
                1 => CubeLink::NocIn(pe),
                2 => CubeLink::HbmRead(pe),
                _ => CubeLink::HbmWrite(pe),
            };
        }
        if index < self.horizontal_base() {
            return if index == 4 * pes { CubeLink::SramRead } else { CubeLink::SramWrite };
        }
        if index < self.vertical_base() {
            let (pair, back) = ((index - self.horizontal_base()) / 2, (index - self.horizontal_base()) % 2);
            let (row, col) = (pair / (self.cols - 1), pair % (self.cols - 1));
            let heading = if back == 0 { Heading::E } else { Heading::W };
            return CubeLink::Noc((row, col + back), heading);
        }
        if index < self.ucie_base() {
            let (pair, back) = ((index - self.vertical_base()) / 2, (index - self.vertical_base()) % 2);
            let (col, row) = (pair / (self.rows - 1), pair % (self.rows - 1));
            let heading = if back == 0 { Heading::S } else { Heading::N };
            return CubeLink::Noc((row + back, col), heading);
        }
        if index < self.io_base() {
            let within = index - self.ucie_base();
            return CubeLink::Ucie(Heading::MESH[(within / self.connections % 4) as usize], within % self.connections);
        }
        if index == self.io_base() { CubeLink::IoOut } else { CubeLink::IoIn }
    }

    /// Bandwidth of a link.
    pub(crate) fn rate(&self, link: CubeLink) -> Rate {
        match link {
            CubeLink::NocOut(_) => self.noc_out,
            CubeLink::NocIn(_) => self.noc_in,
            CubeLink::HbmRead(_) | CubeLink::HbmWrite(_) => self.hbm,
            CubeLink::SramRead | CubeLink::SramWrite => self.sram,
            CubeLink::Noc(..) => self.noc,
            CubeLink::Ucie(..) => self.ucie,
            CubeLink::IoOut | CubeLink::IoIn => self.io,
        }
    }

    /// Latency from a link's input to whatever follows it.
    pub(crate) fn latency_ps(&self, link: CubeLink) -> Ps {
        match link {
            CubeLink::Noc(..) => self.wire_ps,
            CubeLink::Ucie(..) => self.crossing_ps,
            CubeLink::IoOut | CubeLink::IoIn => self.io_ps,
            _ => 0,
        }
    }

    /// Name of a link within its cube.
    pub(crate) fn name(&self, link: CubeLink) -> String {
        match link {
            CubeLink::NocOut(pe) => format!("pe{pe}.noc_out"),
            CubeLink::NocIn(pe) => format!("pe{pe}.noc_in"),
            CubeLink::HbmRead(pe) => format!("pe{pe}.hbm_read"),
            CubeLink::HbmWrite(pe) => format!("pe{pe}.hbm_write"),
            CubeLink::SramRead => "sram_read".to_owned(),
            CubeLink::SramWrite => "sram_write".to_owned(),
            CubeLink::Noc((row, col), heading) => format!("r{row}c{col}_{heading:?}"),
            CubeLink::Ucie(port, connection) => format!("ucie_{port:?}{connection}"),
            CubeLink::IoOut => "io_out".to_owned(),
            CubeLink::IoIn => "io_in".to_owned(),
        }
    }

    /// Router of a PE: from its corner along the row towards the middle, then row by row inwards; PEs that
    /// do not fit into the quadrant start over at the corner.
    pub(crate) fn pe_router(&self, pe: u32) -> Router {
        let (corner, k) = (pe / self.pe_per_corner, pe % self.pe_per_corner);
        let (high, wide) = ((self.rows / 2).max(1), (self.cols / 2).max(1));
        let (down, along) = (k / wide % high, k % wide);
        let row = if corner & 2 == 0 { down } else { self.rows - 1 - down };
        let col = if corner & 1 == 0 { along } else { self.cols - 1 - along };
        (row, col)
    }

    /// Router of the shared SRAM: the west edge, just below the middle.
    pub(crate) fn sram_router(&self) -> Router {
        (self.rows / 2, 0)
    }

    /// Router of the connection to the I/O chiplet: the north edge, just left of the middle.
    pub(crate) fn io_router(&self) -> Router {
        (0, (self.cols - 1) / 2)
    }

    /// Router of a UCIe connection: around the middle of the edge the port is on.
    pub(crate) fn ucie_router(&self, port: Heading, connection: u32) -> Router {
        let along = |extent: u32| {
            if self.connections <= extent {
                (extent - self.connections) / 2 + connection
            } else {
                connection * extent / self.connections
            }
        };
        match port {
            Heading::N => (0, along(self.cols)),
            Heading::S => (self.rows - 1, along(self.cols)),
            Heading::E => (along(self.rows), self.cols - 1),
            _ => (along(self.rows), 0),
        }
    }
}
