//! The command line of the bench.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::baselines::docker::Which;
use crate::baselines::{hello, runc};
use crate::benches::{NAMES, Scale, recovery};
use crate::compare;

/// The role of the process.
#[derive(Debug)]
pub enum Mode {
    Help,
    Measure(Arguments),
    RuncWorker {
        dir: PathBuf,
    },
    HelloServer {
        certificate: PathBuf,
        key: PathBuf,
    },
    RecoveryChild {
        name: Option<String>,
        count: usize,
    },
    /// Prints the root file system of the sandboxes.
    RootFs,
    /// Compares the blocks in a directory.
    CompareBlocks {
        dir: PathBuf,
    },
}

/// The benches to run.
#[derive(Debug)]
pub struct Arguments {
    pub names: Vec<&'static str>,
    pub scale: Scale,
    pub docker: Which,
    pub json: Option<PathBuf>,
}

pub fn usage() -> String {
    format!(
        "usage: ./dev bench [NAME...] [--json FILE] [--with-docker] [--full]\n       \
         ./dev bench --compare COMMIT NAME... [--full]\n\n\
         NAME           one of: {}; all without a name\n\
         --compare      run the benches of this tree and of a commit in alternating blocks\n\
         --json FILE    also write one JSON object per row\n\
         --with-docker  start a Docker Engine to measure against, and remove it\n\
         --full         measure at full scale: 500 idle sandboxes, 2,000 cycles of churn, lists of 1,000,000",
        NAMES.join(" ")
    )
}

pub fn parse(words: &[String]) -> Result<Mode> {
    let mut words = words.iter().map(String::as_str);
    let mut arguments =
        Arguments { names: Vec::new(), scale: Scale::Short, docker: Which::Running, json: None };
    while let Some(word) = words.next() {
        match word {
            runc::WORKER => return Ok(Mode::RuncWorker { dir: words.next().unwrap_or_default().into() }),
            hello::SERVER => {
                let certificate = words.next().unwrap_or_default().into();
                return Ok(Mode::HelloServer { certificate, key: words.next().unwrap_or_default().into() });
            }
            recovery::CHILD => {
                let count = words.next().unwrap_or_default().parse()?;
                return Ok(Mode::RecoveryChild { name: words.next().map(str::to_owned), count });
            }
            compare::ROOT_FS => return Ok(Mode::RootFs),
            compare::BLOCKS => {
                return Ok(Mode::CompareBlocks { dir: words.next().unwrap_or_default().into() });
            }
            "-h" | "--help" => return Ok(Mode::Help),
            "--with-docker" => arguments.docker = Which::Own,
            "--full" => arguments.scale = Scale::Full,
            "--json" => match words.next() {
                Some(file) => arguments.json = Some(file.into()),
                None => bail!("--json needs a file\n{}", usage()),
            },
            name => match NAMES.iter().find(|known| **known == name) {
                Some(known) => arguments.names.push(known),
                None => bail!("there is no bench {name:?}\n{}", usage()),
            },
        }
    }
    if arguments.names.is_empty() {
        arguments.names = NAMES.to_vec();
    }
    Ok(Mode::Measure(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn names_and_flags_come_in_any_order() {
        let Mode::Measure(arguments) = parse(&words("pause --json f execute --full")).unwrap() else {
            panic!()
        };
        assert_eq!(arguments.names, ["pause", "execute"]);
        assert_eq!(arguments.json, Some("f".into()));
        assert_eq!((arguments.scale, arguments.docker), (Scale::Full, Which::Running));
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = parse(&words("exec")).unwrap_err().to_string();
        assert!(error.contains("execute") && error.contains("recovery"), "{error}");
    }

    #[test]
    fn without_a_name_all_are_measured() {
        let Mode::Measure(arguments) = parse(&[]).unwrap() else { panic!() };
        assert_eq!(arguments.names, NAMES);
    }
}
