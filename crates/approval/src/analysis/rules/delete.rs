//! Rules for recursive deletion and overwriting disks.

use alloc::string::String;

use super::{has, operands, value};
use crate::analysis::path;
use crate::analysis::text::{has_hole, is_hole};
use crate::analysis::walk::{Walk, WalkResult};
use crate::{Category, Hardline};

impl Walk<'_> {
    pub(super) fn deletes(&mut self, name: &str, args: &[String]) -> WalkResult<()> {
        match name {
            "rm" | "grm" => self.rm(args),
            "unlink" | "rmdir" | "trash" | "srm" => {
                operands(args).into_iter().try_for_each(|target| self.loses(target))
            }
            "shred" | "wipe" | "scrub" => operands(args).into_iter().try_for_each(|target| {
                self.over_device(target)?;
                self.loses(target)
            }),
            "rsync" | "rclone"
                if args.iter().any(|arg| arg.starts_with("--del"))
                    || args.first().is_some_and(|arg| arg == "purge") =>
            {
                self.report(Category::RecursiveDelete);
                operands(args).last().map_or(Ok(()), |target| self.wipes(target))
            }
            "mv" => {
                let targets = operands(args);
                targets.iter().take(targets.len().saturating_sub(1)).try_for_each(|target| {
                    self.wipes(target)?;
                    self.loses(target)
                })
            }
            "dd" => args
                .iter()
                .filter_map(|arg| arg.strip_prefix("of="))
                .try_for_each(|target| self.writes(&self.home_in(target))),
            "wipefs" | "blkdiscard" | "sgdisk" | "hdparm" | "nvme" | "cryptsetup" | "badblocks" => {
                self.erases(name, args)
            }
            "fdisk" | "sfdisk" | "cfdisk" | "parted" | "gdisk" | "diskutil" | "lvremove" | "vgremove"
            | "pvremove" | "zpool" | "zfs" | "mdadm" | "swapoff" => self.partitions(name, args),
            _ if is_format(name) => self.formats(args),
            _ => Ok(()),
        }
    }

    fn rm(&mut self, args: &[String]) -> WalkResult<()> {
        let recursive =
            has(args, 'r', "recursive") || has(args, 'R', "") || args.iter().any(|arg| is_hole_flag(arg));
        if !recursive {
            return operands(args).into_iter().try_for_each(|target| self.loses(target));
        }
        self.report(Category::RecursiveDelete);
        operands(args).into_iter().try_for_each(|target| {
            self.wipes(target)?;
            self.loses(target)
        })
    }

    /// Ends the walk if deleting the target wipes the system, a home or the gateway.
    pub(crate) fn wipes(&mut self, target: &str) -> WalkResult<()> {
        let place = path::resolve(target, &self.state.cwd);
        match place.and_then(|place| path::wiped(&place, self.context)) {
            Some(hardline) => Err(hardline),
            None => Ok(()),
        }
    }

    fn loses(&mut self, target: &str) -> WalkResult<()> {
        if let Some(category) = path::sensitive(target, &self.state.cwd, self.context) {
            self.report(category);
        }
        Ok(())
    }

    pub(super) fn over_device(&self, target: &str) -> WalkResult<()> {
        let place = path::resolve(target, &self.state.cwd);
        if place.is_some_and(|place| path::is_device(&place)) { Err(Hardline::WritesDevice) } else { Ok(()) }
    }

    fn erases(&mut self, name: &str, args: &[String]) -> WalkResult<()> {
        let harmful = match name {
            "wipefs" => has(args, 'a', "all") || has(args, 'o', "offset"),
            "sgdisk" => has(args, 'Z', "zap-all") || has(args, 'z', "zap") || has(args, 'o', "clear"),
            "hdparm" => args.iter().any(|arg| arg.starts_with("--security") || arg.starts_with("--trim")),
            "nvme" => args.iter().any(|arg| matches!(arg.as_str(), "format" | "sanitize" | "write-zeroes")),
            "cryptsetup" => args
                .iter()
                .any(|arg| matches!(arg.as_str(), "luksFormat" | "erase" | "luksErase" | "reencrypt")),
            "badblocks" => has(args, 'w', ""),
            _ => true,
        };
        if !harmful {
            return Ok(());
        }
        self.report(Category::Disk);
        operands(args).into_iter().try_for_each(|target| self.over_device(target))
    }

    fn partitions(&mut self, name: &str, args: &[String]) -> WalkResult<()> {
        let looks = match name {
            "zpool" | "zfs" => !args.first().is_some_and(|verb| {
                matches!(verb.as_str(), "destroy" | "rollback" | "labelclear" | "create")
            }),
            "diskutil" => !args.first().is_some_and(|verb| {
                verb.starts_with("erase") || verb.starts_with("partition") || verb.contains("delete")
            }),
            "mdadm" => !args
                .iter()
                .any(|arg| matches!(arg.as_str(), "--zero-superblock" | "--stop" | "--create" | "--remove")),
            _ => {
                has(args, 'l', "list")
                    || has(args, '\0', "help")
                    || has(args, 'V', "version")
                    || args.iter().any(|arg| arg == "print")
            }
        };
        if !looks {
            self.report(Category::Disk);
        }
        Ok(())
    }

    fn formats(&mut self, args: &[String]) -> WalkResult<()> {
        if has(args, 'V', "version") || has(args, '\0', "help") || operands(args).is_empty() {
            return Ok(());
        }
        self.report(Category::Disk);
        let blind = operands(args).iter().any(|target| has_hole(target) || target.starts_with("/dev/"));
        let device = value(args, "", "--device").is_some_and(|target| target.starts_with("/dev/"));
        if blind || device { Err(Hardline::Formats) } else { Ok(()) }
    }

    /// `of=~/x`: some shells expand a tilde within a word.
    fn home_in(&self, target: &str) -> String {
        match target.strip_prefix("~/") {
            Some(rest) => alloc::format!("{}/{rest}", self.context.home),
            None => String::from(target),
        }
    }
}

fn is_format(name: &str) -> bool {
    matches!(name, "mkfs" | "mke2fs" | "mkswap" | "mkdosfs" | "mkntfs" | "newfs" | "newfs_hfs" | "newfs_apfs")
        || name.starts_with("mkfs.")
}

/// An option with unknown parts may be any option.
fn is_hole_flag(arg: &str) -> bool {
    arg.starts_with('-') && arg.chars().any(is_hole)
}
