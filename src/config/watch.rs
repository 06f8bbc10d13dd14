//! Tells when a configuration file changed. Its folder is watched rather than the file, so that an editor's rename and
//! a container's symlinked config map are seen too.

use std::path::Path;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch;

/// A burst of changes is one change once it has been quiet for this long.
const QUIET: Duration = Duration::from_millis(200);

/// Watches one file; dropping it ends the watch.
pub struct Watch {
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
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| !matches!(event.kind, EventKind::Access(_))) {
                sender.send_replace(());
            }
        })?;
        watcher.watch(folder(file), RecursiveMode::NonRecursive)?;
        Ok(Self { changed, _watcher: watcher })
    }

    /// Waits for a change and then for quiet. Never returns once the watch has failed.
    pub async fn changed(&mut self) {
        if self.changed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        while let Ok(Ok(())) = tokio::time::timeout(QUIET, self.changed.changed()).await {}
    }
}

fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_is_written_renamed_over_or_relinked_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tidegate.yaml");
        std::fs::write(&file, "a").unwrap();
        let mut watch = Watch::new(&file).unwrap();
        std::fs::write(&file, "b").unwrap();
        watch.changed().await;
        let other = dir.path().join("other");
        std::fs::write(&other, "c").unwrap();
        watch.changed().await;
        std::fs::rename(&other, &file).unwrap();
        watch.changed().await;
    }
}
