//! The folder that the script and the servers share: the ledger of what the chat has sent, and signs that the script
//! puts up. It holds no state of its own, so that a server's next process finds everything where the last one left it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::process;

/// Something that the script tells a server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sign {
    /// The crash server's fault is mended: it stays up.
    Mended,
    /// The chat sends nothing more.
    Quiet,
}

/// The folder.
#[derive(Clone, Debug)]
pub(super) struct Stage(PathBuf);

impl Stage {
    /// A new folder of our own below the system's temporary one.
    pub(super) fn create() -> io::Result<Self> {
        let name = format!("tidegate-demo-{}-{:08x}", process::id(), fastrand::u32(..));
        let folder = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self(folder))
    }

    /// The folder that the script made.
    pub(super) fn at(folder: PathBuf) -> Self {
        Self(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        std::fs::remove_dir_all(&self.0)
    }

    pub(super) fn put_up(&self, sign: Sign) -> io::Result<()> {
        File::create(self.sign(sign)).map(drop)
    }

    pub(super) fn shows(&self, sign: Sign) -> bool {
        self.sign(sign).exists()
    }

    fn sign(&self, sign: Sign) -> PathBuf {
        self.0.join(match sign {
            Sign::Mended => "mended",
            Sign::Quiet => "quiet",
        })
    }

    /// Takes the ledger; waits while somebody else has it.
    pub(super) fn ledger(&self) -> io::Result<Ledger> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(self.0.join("ledger"))?;
        file.lock()?;
        let mut ledger = Ledger {
            file,
            sent: 0,
            pid: 0,
        };
        ledger.read()?;
        Ok(ledger)
    }
}

/// How many messages the chat has sent, and which process sent the last. Whoever has it keeps the chat from writing and
/// from being killed, so a message was written exactly if it is counted here.
#[derive(Debug)]
pub(super) struct Ledger {
    file: File,
    sent: u64,
    pid: u64,
}

impl Ledger {
    /// The number of the last message.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// The process that sent it; `None` before the first.
    pub(super) fn sender(&self) -> Option<rustix::process::Pid> {
        rustix::process::Pid::from_raw(i32::try_from(self.pid).ok()?)
    }

    /// Records that this process has sent the messages up to this number.
    pub(super) fn record(&mut self, sent: u64) -> io::Result<()> {
        (self.sent, self.pid) = (sent, process::id().into());
        let numbers = [self.sent, self.pid].map(u64::to_le_bytes);
        self.file.write_all_at(numbers.as_flattened(), 0)
    }

    fn read(&mut self) -> io::Result<()> {
        let mut numbers = [[0; 8]; 2];
        match self.file.read_exact_at(numbers.as_flattened_mut(), 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        [self.sent, self.pid] = numbers.map(u64::from_le_bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_outlives_who_wrote_it() {
        let stage = Stage::create().unwrap();
        assert_eq!(stage.ledger().unwrap().sent(), 0);
        assert_eq!(stage.ledger().unwrap().sender(), None);
        stage.ledger().unwrap().record(7).unwrap();
        let read = Stage::at(stage.path().into()).ledger().unwrap();
        assert_eq!(read.sent(), 7);
        assert_eq!(read.sender(), Some(rustix::process::getpid()));
        stage.remove().unwrap();
    }

    #[test]
    fn a_sign_stays_up() {
        let stage = Stage::create().unwrap();
        assert!(!stage.shows(Sign::Mended));
        stage.put_up(Sign::Mended).unwrap();
        assert!(stage.shows(Sign::Mended) && !stage.shows(Sign::Quiet));
        stage.remove().unwrap();
    }
}
