//! Landlock: rights on files and devices, signals, abstract sockets and TCP ports.

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
    make_bitflags,
};
use rustix::fs::FileType;

use crate::{Error, Network, Policy, namespaces};

/// Versions from which on truncation, and signals, are restricted.
pub(crate) const CONFINES_FILES: u8 = 3;
pub(crate) const CONFINES_SIGNALS: u8 = 6;
/// Versions that restrict something more, newest first. Later ones are used like the newest of these.
const VERSIONS: [(u8, ABI); 6] =
    [(6, ABI::V6), (5, ABI::V5), (4, ABI::V4), (3, ABI::V3), (2, ABI::V2), (1, ABI::V1)];

/// Devices without state that belongs to someone.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// The newest version that this kernel and this program know; 0 without Landlock.
pub(crate) fn version() -> u8 {
    let known = VERSIONS.into_iter().find(|(_, abi)| ruleset(*abi, Network::None).is_ok());
    known.map_or(0, |(version, _)| version)
}

/// Restricts the calling thread.
pub(crate) fn restrict(policy: &Policy) -> Result<(), Error> {
    let abi = VERSIONS.into_iter().find(|(version, _)| *version == policy.layers.landlock);
    let abi = abi.map_or(ABI::Unsupported, |(_, abi)| abi);
    let mut rules = Rules { abi, ruleset: ruleset(abi, policy.network)? };
    for path in policy.read.iter().filter(|path| path.exists()) {
        rules = rules.allow(path, READ)?;
    }
    for path in &policy.write {
        rules = rules.allow(path, READ | WRITE)?;
    }
    for device in DEVICES.map(Path::new).into_iter().filter(|device| device.exists()) {
        rules = rules.allow(device, DEVICE)?;
    }
    if policy.layers.namespaces {
        for device in namespaces::PRIVATE_DEVICES.map(Path::new).into_iter().filter(|device| device.exists())
        {
            rules = rules.allow(device, READ | WRITE | DEVICE)?;
        }
    }
    rules = rules.allow_standard_files()?;
    if let Network::Port(port) = policy.network {
        if abi < ABI::V4 {
            return Err(Error::Ports);
        }
        rules.ruleset = rules.ruleset.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    let status = rules.ruleset.restrict_self()?;
    if status.ruleset == RulesetStatus::FullyEnforced { Ok(()) } else { Err(Error::PartlyEnforced) }
}

const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{Execute | ReadFile | ReadDir});
/// Devices and sockets cannot be created.
const WRITE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    WriteFile | Truncate | Refer | RemoveDir | RemoveFile | MakeDir | MakeReg | MakeSym | MakeFifo
});
const DEVICE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | IoctlDev});
const OUTPUT: BitFlags<AccessFs> = make_bitflags!(AccessFs::{WriteFile | Truncate});

/// Refuses everything that `abi` knows, or fails.
fn ruleset(abi: ABI, network: Network) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?;
    // Without a network there are no sockets, or only those of a namespace.
    if abi >= ABI::V4 && matches!(network, Network::Port(_)) {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    if abi >= ABI::V6 {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    ruleset.create()
}

struct Rules {
    abi: ABI,
    ruleset: RulesetCreated,
}

impl Rules {
    fn allow(self, path: &Path, rights: BitFlags<AccessFs>) -> Result<Self, Error> {
        let unopened = |source| Error::Path { path: PathBuf::from(path), source };
        self.allow_opened(PathFd::new(path).map_err(unopened)?, rights)
    }

    fn allow_opened(self, file: impl AsFd, rights: BitFlags<AccessFs>) -> Result<Self, Error> {
        let known = rights & AccessFs::from_all(self.abi);
        let stat = rustix::fs::fstat(&file).map_err(Error::system("fstat"))?;
        let applicable = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => known,
            _ => known & AccessFs::from_file(self.abi),
        };
        let ruleset = self.ruleset.add_rule(PathBeneath::new(file, applicable))?;
        Ok(Self { ruleset, ..self })
    }

    /// Programs open their own output again, as `/dev/stderr`. The right is for that file only.
    fn allow_standard_files(self) -> Result<Self, Error> {
        let input = std::io::stdin();
        let with_input = if input.is_terminal() { self.allow_opened(input.as_fd(), DEVICE)? } else { self };
        with_input.allow_output(&std::io::stdout())?.allow_output(&std::io::stderr())
    }

    fn allow_output(self, output: &(impl AsFd + IsTerminal)) -> Result<Self, Error> {
        if output.is_terminal() {
            return self.allow_opened(output.as_fd(), DEVICE);
        }
        let stat = rustix::fs::fstat(output).map_err(Error::system("fstat"))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.allow_opened(output.as_fd(), OUTPUT),
            _ => Ok(self),
        }
    }
}
