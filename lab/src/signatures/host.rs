//! Load that keeps the receiver from reading.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, ensure};
use barograph_sim::SeededRng;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};

use super::plan::Host;
use crate::jobs::{Task, sleep};

/// Processors: the sender spins on one, the receiver reads on another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpus {
    pub(crate) sender: usize,
    pub(crate) receiver: usize,
}

impl Cpus {
    /// The first and the last processor that this process may use.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let allowed = sched_getaffinity(Pid::from_raw(0))?;
        let mut numbers = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
        let (sender, receiver) = (numbers.next(), numbers.next_back());
        let both = sender.zip(receiver).context("two processors are needed: the sender spins on one")?;
        Ok(Self { sender: both.0, receiver: both.1 })
    }
}

pub(crate) fn pin(cpu: usize) -> anyhow::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &cpus)?)
}

pub(crate) fn request_realtime(thread_id: i32, priority: u8) -> anyhow::Result<()> {
    let (priority, id) = (priority.to_string(), thread_id.to_string());
    let asked = Command::new("chrt").args(["-f", "-p", &priority, &id]).stderr(Stdio::null()).status();
    ensure!(asked.is_ok_and(|status| status.success()), "chrt cannot give a thread real-time priority");
    Ok(())
}

/// Load on the receiver's host; ends when dropped.
pub(crate) struct Load {
    _task: Option<Task<()>>,
    _group: Option<Group>,
}

impl Load {
    /// Starts the load beside the receiver's process. A slow receiver does its work itself and
    /// needs no load.
    pub(crate) fn start(host: Host, cpus: Cpus, process_id: u32, seed: u64) -> anyhow::Result<Self> {
        let mut rng = SeededRng::new(seed, 2);
        let cpu = cpus.receiver;
        let mut group = None;
        let task = match host {
            Host::Slow { .. } => None,
            Host::Gen { busy, run_ms, sleep_ms, .. } => {
                Some(Task::start(move |stop| generate(busy, run_ms, sleep_ms, cpu, &mut rng, stop)))
            }
            Host::Preempt { stall_ms, every_ms } => {
                let (tell, told) = std::sync::mpsc::channel();
                let task = Task::start(move |stop| {
                    // The other end waits, or the run is over.
                    let _ = tell.send(gettid().as_raw());
                    preempt(stall_ms, every_ms, cpu, &mut rng, stop);
                });
                // Waits at most until this thread is scheduled.
                request_realtime(told.recv_timeout(Duration::from_secs(5))?, PRIORITY)?;
                Some(task)
            }
            Host::Quota { period_us, share_of_need } => {
                let path = group.insert(Group::new(process_id)?).0.clone();
                Some(Task::start(move |stop| limit(&path, process_id, period_us, share_of_need, stop)))
            }
        };
        Ok(Self { _task: task, _group: group })
    }
}

/// The paper's process generator (Dickens §3.1.4); the scheduler treats a thread like a process.
fn generate(
    busy: u32,
    run_ms: [f64; 2],
    sleep_ms: [f64; 2],
    cpu: usize,
    rng: &mut SeededRng,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::Relaxed) {
        let count = rng.index_below(busy as usize + 1);
        let until = Instant::now() + draw(rng, run_ms);
        thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(move || {
                    // On another processor it would not compete, so then it does not run at all.
                    if pin(cpu).is_ok() {
                        spin(until, stop);
                    }
                });
            }
        });
        sleep(draw(rng, sleep_ms), stop);
    }
}

fn preempt(stall_ms: [f64; 2], every_ms: f64, cpu: usize, rng: &mut SeededRng, stop: &AtomicBool) {
    if pin(cpu).is_err() {
        return;
    }
    while !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_secs_f64(rng.exponential(every_ms / 1e3)), stop);
        let until = Instant::now() + draw(rng, stall_ms);
        spin(until, stop);
    }
}

/// Measures the CPU time that the receiver needs, then limits it to a share of that.
fn limit(group: &CgroupPath, process_id: u32, period_us: u32, share_of_need: f64, stop: &AtomicBool) {
    sleep(SETTLED, stop);
    let before = (Instant::now(), ran(process_id));
    sleep(OBSERVED, stop);
    let (elapsed, after) = (before.0.elapsed(), ran(process_id));
    let Some((before, after)) = before.1.zip(after) else { return };
    let need = after.saturating_sub(before).as_secs_f64() / elapsed.as_secs_f64();
    let quota_us = ((need * share_of_need * f64::from(period_us)) as u32).max(QUOTA_MIN_US);
    // If the quota cannot be set, nothing is lost; the table then shows that.
    let _ = group.set(quota_us, period_us);
}

pub(crate) fn draw(rng: &mut SeededRng, [from_ms, to_ms]: [f64; 2]) -> Duration {
    Duration::from_secs_f64((from_ms + (to_ms - from_ms) * rng.uniform()) / 1e3)
}

fn spin(until: Instant, stop: &AtomicBool) {
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// CPU time of a process so far (Linux, Documentation/scheduler/sched-stats.rst).
fn ran(process_id: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{process_id}/schedstat")).ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

/// Limits a process to `quota_us` in each period, until the returned group is dropped.
pub(crate) fn limit_to(process_id: u32, quota_us: u32, period_us: u32) -> anyhow::Result<Group> {
    let group = Group::new(process_id)?;
    group.0.set(quota_us, period_us).context("cannot set a CPU quota of a control group")?;
    Ok(group)
}

/// A control group with the receiver in it; removed when dropped.
pub(crate) struct Group(CgroupPath);

#[derive(Clone)]
struct CgroupPath {
    folder: PathBuf,
    is_v2: bool,
}

impl Group {
    fn new(process_id: u32) -> anyhow::Result<Self> {
        Self::below(Path::new("/sys/fs/cgroup"), process_id)
    }

    /// Makes the group below version 2's root, or with version 1's controllers (Linux,
    /// Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/).
    fn below(root: &Path, process_id: u32) -> anyhow::Result<Self> {
        let controls = |name: &str| {
            let listed = fs::read_to_string(root.join(name)).unwrap_or_default();
            listed.split_whitespace().any(|controller| controller == "cpu")
        };
        let is_v2 = controls("cgroup.controllers");
        if is_v2 && !controls("cgroup.subtree_control") {
            fs::write(root.join("cgroup.subtree_control"), "+cpu")
                .context("control groups cannot limit the CPU")?;
        }
        let parent = if is_v2 { root.to_owned() } else { root.join("cpu") };
        let folder = parent.join(format!("barograph-{process_id}"));
        fs::create_dir(&folder).context("control groups are not writable")?;
        let group = Self(CgroupPath { folder, is_v2 });
        fs::write(group.0.folder.join("cgroup.procs"), process_id.to_string())
            .context("cannot move the process into a control group")?;
        Ok(group)
    }
}

impl CgroupPath {
    fn set(&self, quota_us: u32, period_us: u32) -> std::io::Result<()> {
        if self.is_v2 {
            return fs::write(self.folder.join("cpu.max"), format!("{quota_us} {period_us}"));
        }
        fs::write(self.folder.join("cpu.cfs_period_us"), period_us.to_string())?;
        fs::write(self.folder.join("cpu.cfs_quota_us"), quota_us.to_string())
    }

    fn release(&self) -> std::io::Result<()> {
        let (file, none) = if self.is_v2 { ("cpu.max", "max") } else { ("cpu.cfs_quota_us", "-1") };
        fs::write(self.folder.join(file), none)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.0.release();
        // A group can only be removed without members, so the receiver is moved out.
        let root = self.0.folder.with_file_name("cgroup.procs");
        let members = fs::read_to_string(self.0.folder.join("cgroup.procs")).unwrap_or_default();
        members.split_whitespace().for_each(|member| drop(fs::write(&root, member)));
        let _ = fs::remove_dir(&self.0.folder);
    }
}

/// Above ordinary threads, also the relay's; below the kernel's own (50).
const PRIORITY: u8 = 20;

/// The first packets of a run cost more; after them half a second shows what the others cost.
const SETTLED: Duration = Duration::from_millis(400);
const OBSERVED: Duration = Duration::from_millis(500);
const QUOTA_MIN_US: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(folder: &Path, name: &str) -> String {
        fs::read_to_string(folder.join(name)).unwrap()
    }

    /// A temporary folder replaces the kernel's: it has the files and stores what is written to
    /// them.
    #[test]
    fn a_quota_is_written_in_the_format_of_cgroup_version_2() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpuset cpu io\n").unwrap();
        let group = Group::below(root.path(), 7).unwrap();
        let folder = root.path().join("barograph-7");
        assert_eq!(written(root.path(), "cgroup.subtree_control"), "+cpu");
        assert_eq!(written(&folder, "cgroup.procs"), "7");
        group.0.set(5000, 20_000).unwrap();
        assert_eq!(written(&folder, "cpu.max"), "5000 20000");
        drop(group);
        assert_eq!(written(&folder, "cpu.max"), "max");
        assert_eq!(written(root.path(), "cgroup.procs"), "7");
    }

    #[test]
    fn a_quota_is_written_in_the_format_of_cgroup_version_1() {
        let root = tempfile::tempdir().unwrap();
        // Version 2 also exists, without the CPU controller, as on a host with both versions.
        fs::write(root.path().join("cgroup.controllers"), "hugetlb\n").unwrap();
        fs::create_dir(root.path().join("cpu")).unwrap();
        let group = Group::below(root.path(), 7).unwrap();
        let folder = root.path().join("cpu/barograph-7");
        assert_eq!(written(&folder, "cgroup.procs"), "7");
        group.0.set(5000, 20_000).unwrap();
        assert_eq!(written(&folder, "cpu.cfs_quota_us"), "5000");
        assert_eq!(written(&folder, "cpu.cfs_period_us"), "20000");
        drop(group);
        assert_eq!(written(&folder, "cpu.cfs_quota_us"), "-1");
        assert_eq!(written(&root.path().join("cpu"), "cgroup.procs"), "7");
    }

    #[test]
    fn a_missing_cgroup_gives_an_error() {
        let root = tempfile::tempdir().unwrap();
        assert!(Group::below(root.path(), 7).is_err_and(|error| error.to_string().contains("not writable")));
    }
}
