//! Credentials, resolved at every dial, so that a rotated secret needs no operator (R18).

use std::io;
use std::path::Path;
use std::process::Stdio as Pipe;
use std::time::Duration;

use secrecy::SecretString;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::timeout;

use super::process::{self, Family};
use super::settings::Credential;
use crate::engine::input::End;

/// A credential command may take so long.
const COMMAND_MAX: Duration = Duration::from_secs(10);
/// More than this is no credential, in bytes.
const LENGTH_MAX: u64 = 64 << 10;

/// Why there is no credential to send. Names the place, never what it holds.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unresolved {
    #[error("the token file `{path}` cannot be read: {error}")]
    File { path: String, error: io::Error },
    #[error("the token command `{program}` cannot be run: {error}")]
    Command { program: String, error: io::Error },
    #[error("the token command `{program}` ended with {end}")]
    Ended { program: String, end: End },
    #[error("the token command `{program}` took over {} s", COMMAND_MAX.as_secs())]
    Slow { program: String },
    #[error("the token is empty")]
    Empty,
}

/// The credential as it is now; `None` where none is configured.
///
/// # Errors
/// Where one is configured and cannot be had.
pub(super) async fn resolve(credential: &Credential) -> Result<Option<SecretString>, Unresolved> {
    let text = match credential {
        Credential::None => return Ok(None),
        Credential::Fixed(secret) => return Ok(Some(secret.clone())),
        Credential::File(path) => read_file(path).await.map_err(|error| Unresolved::File {
            path: path.display().to_string(),
            error,
        })?,
        Credential::Command(words) => run(words).await?,
    };
    let token = text.trim_end_matches(['\r', '\n']);
    if token.is_empty() {
        return Err(Unresolved::Empty);
    }
    Ok(Some(SecretString::from(token)))
}

async fn read_file(path: &Path) -> io::Result<String> {
    read(File::open(path).await?).await
}

async fn read(source: impl AsyncRead + Unpin) -> io::Result<String> {
    let mut text = String::new();
    source.take(LENGTH_MAX).read_to_string(&mut text).await?;
    Ok(text)
}

async fn run(words: &[String]) -> Result<String, Unresolved> {
    let owned = words.to_vec();
    let program = words.first().cloned().unwrap_or_default();
    let failed = |error| Unresolved::Command {
        program: program.clone(),
        error,
    };
    let mut family = process::spawn(move || command(&owned))
        .await
        .map_err(failed)?;
    let said = timeout(COMMAND_MAX, said(&mut family)).await;
    family.end().await;
    match said {
        Err(_) => Err(Unresolved::Slow { program }),
        Ok(Err(error)) => Err(failed(error)),
        Ok(Ok((text, End::Exit(0)))) => Ok(text),
        Ok(Ok((_, end))) => Err(Unresolved::Ended { program, end }),
    }
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(words.first().map_or("", String::as_str));
    command.args(words.iter().skip(1));
    command
        .stdin(Pipe::null())
        .stdout(Pipe::piped())
        .stderr(Pipe::null());
    command
}

async fn said(family: &mut Family) -> io::Result<(String, End)> {
    let (_, stdout, _) = family.pipes();
    let text = match stdout {
        Some(stdout) => read(stdout).await?,
        None => String::new(),
    };
    Ok((text, family.exited().await))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    async fn of(script: &str) -> Result<String, String> {
        let words = ["sh", "-c", script].map(String::from).to_vec();
        let resolved = resolve(&Credential::Command(words)).await;
        resolved
            .map(|token| token.unwrap().expose_secret().into())
            .map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn r18_a_command_gives_what_it_prints() {
        assert_eq!(of("echo secret").await.unwrap(), "secret");
        assert_eq!(
            of("echo secret; exit 3").await.unwrap_err(),
            "the token command `sh` ended with exit code 3"
        );
        assert_eq!(of("true").await.unwrap_err(), "the token is empty");
    }

    #[tokio::test]
    async fn r18_a_file_gives_its_text_without_the_line_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "se cret\r\n").unwrap();
        let token = resolve(&Credential::File(path.clone()))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(token.expose_secret(), "se cret");
        std::fs::remove_file(&path).unwrap();
        let unresolved = resolve(&Credential::File(path))
            .await
            .unwrap_err()
            .to_string();
        assert!(unresolved.starts_with("the token file `"), "{unresolved}");
    }
}
