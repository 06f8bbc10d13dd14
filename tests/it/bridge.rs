//! A bridge whose lives follow a script (`tests/support/script.rs`), and the diary that its processes leave.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::gateway::{PATIENCE, Place, faultd, with};

/// The files of one bridge.
#[derive(Clone)]
pub(crate) struct Bridge {
    script: PathBuf,
    diary: PathBuf,
}

/// A line of the diary: which life, and what it wrote down.
pub(crate) type Line = (usize, String);

impl Bridge {
    /// One with these lives; the last one is that of every process after it.
    pub(crate) fn new(place: &Place, name: &str, lives: &[String]) -> Self {
        let file = |kind: &str| place.file(&format!("{name}.{kind}"));
        let (script, diary) = (file("script"), file("diary"));
        fs::write(&script, lives.join("\n")).unwrap();
        fs::write(&diary, "").unwrap();
        Self { script, diary }
    }

    /// Its entry in the configuration, with more fields. A process that died is launched again at once.
    pub(crate) fn entry(&self, fields: Value) -> Value {
        let (script, diary) = (self.script.display(), self.diary.display());
        let entry = faultd(&format!("--script {script} --diary {diary}"));
        let quick = json!({"reconnectIntervalMs": 1, "reconnectMaxIntervalMs": 1});
        with(with(entry, quick), fields)
    }

    /// What its processes have written down so far.
    pub(crate) fn diary(&self) -> Vec<Line> {
        let text = fs::read_to_string(&self.diary).unwrap();
        // The last line may be half written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole.lines().filter_map(|line| line.split_once(' '));
        lines
            .map(|(life, what)| (life.parse().unwrap(), what.to_owned()))
            .collect()
    }

    /// What a life got as an answer to its request of this id, in order: results and errors.
    pub(crate) fn got(&self, life: usize, id: &str) -> Vec<Value> {
        let begin = format!("got {id} ");
        let lines = self.diary().into_iter().filter(|(of, _)| *of == life);
        let verdicts = lines.filter_map(|(_, what)| Some(what.strip_prefix(&begin)?.to_owned()));
        verdicts
            .map(|verdict| serde_json::from_str(&verdict).unwrap())
            .collect()
    }

    /// Waits until this is true of the diary.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&[Line]) -> bool) {
        let mut tick = tokio::time::interval(std::time::Duration::from_millis(5));
        let read = async {
            while !is_so(&self.diary()) {
                tick.tick().await;
            }
        };
        let read = tokio::time::timeout(PATIENCE, read).await;
        read.unwrap_or_else(|_| panic!("not {what}: {:#?}", self.diary()));
    }

    /// Waits until a life has an answer to its request of this id; the answer.
    pub(crate) async fn answer(&self, life: usize, id: &str) -> Value {
        let begin = format!("got {id} ");
        let is_it = |(of, what): &Line| *of == life && what.starts_with(&begin);
        self.until(&begin, |lines| lines.iter().any(is_it)).await;
        self.got(life, id).remove(0)
    }
}
