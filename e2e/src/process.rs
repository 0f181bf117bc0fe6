//! What the kernel shows of a process.

use std::fs;

use anyhow::{Context, Result};

/// The resident memory of a process.
pub fn resident_kb(pid: u32) -> Result<u64> {
    status_kb(pid, "VmRSS:")
}

/// The most resident memory that a process has had.
pub fn peak_kb(pid: u32) -> Result<u64> {
    status_kb(pid, "VmHWM:")
}

fn status_kb(pid: u32, field: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let line = line.with_context(|| format!("no {field} of process {pid}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// The number of open files of a process.
pub fn open_files(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// The processor time of a process, of its own and in the kernel, in ticks of its clock.
pub fn processor_ticks(pid: i32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(')').with_context(|| format!("{stat:?} has no name"))?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut next = || Ok::<u64, anyhow::Error>(fields.next().context("too few fields")?.parse()?);
    Ok(next()? + next()?)
}
