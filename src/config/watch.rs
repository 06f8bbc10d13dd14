//! Tells when a configuration file changed. Its folder is watched rather than the file, so that an editor's rename and
//! a container's symlinked config map are seen too; what counts is whether the text is another one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch;

/// A burst of changes is one change once it has been quiet for this long.
const QUIET: Duration = Duration::from_millis(200);

/// Watches one file; dropping it ends the watch.
pub struct Watch {
    file: PathBuf,
    text: Option<Vec<u8>>,
    changed: watch::Receiver<()>,
    _watcher: RecommendedWatcher,
}

impl Watch {
    /// Watches the folder of `file`.
    ///
    /// # Errors
    /// Where the system has no watch left, or the folder cannot be read.
    pub fn new(file: &Path) -> notify::Result<Self> {
        let (sender, changed) = watch::channel(());
        let mut watcher =
            notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
                if event.is_ok_and(|event| !matches!(event.kind, EventKind::Access(_))) {
                    sender.send_replace(());
                }
            })?;
        watcher.watch(folder(file), RecursiveMode::NonRecursive)?;
        Ok(Self {
            file: file.into(),
            text: std::fs::read(file).ok(),
            changed,
            _watcher: watcher,
        })
    }

    /// Waits until the file says something else, and then for quiet. Never returns once the watch has failed.
    pub async fn changed(&mut self) {
        loop {
            if self.changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            while let Ok(Ok(())) = tokio::time::timeout(QUIET, self.changed.changed()).await {}
            let text = std::fs::read(&self.file).ok();
            if text.is_some() && text != self.text {
                self.text = text;
                return;
            }
        }
    }
}

fn folder(file: &Path) -> &Path {
    file.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_is_written_or_renamed_over_has_changed_and_its_neighbours_have_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tidegate.yaml");
        std::fs::write(&file, "a").unwrap();
        let mut watch = Watch::new(&file).unwrap();
        std::fs::write(&file, "b").unwrap();
        watch.changed().await;
        assert_eq!(watch.text.as_deref(), Some(&b"b"[..]));
        let other = dir.path().join("other");
        std::fs::write(&other, "c").unwrap();
        std::fs::rename(&other, &file).unwrap();
        watch.changed().await;
        assert_eq!(watch.text.as_deref(), Some(&b"c"[..]));
    }

    #[tokio::test]
    async fn a_relinked_folder_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let link = |name: &str, text: &str| {
            let folder = dir.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("tidegate.yaml"), text).unwrap();
            let fresh = dir.path().join("..fresh");
            std::os::unix::fs::symlink(folder, &fresh).unwrap();
            std::fs::rename(fresh, dir.path().join("..data")).unwrap();
        };
        link("one", "a");
        let file = dir.path().join("tidegate.yaml");
        std::os::unix::fs::symlink("..data/tidegate.yaml", &file).unwrap();
        let mut watch = Watch::new(&file).unwrap();
        link("two", "b");
        watch.changed().await;
        assert_eq!(watch.text.as_deref(), Some(&b"b"[..]));
    }
}
