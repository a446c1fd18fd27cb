//! The file system after a power cut, from the recorded operations.
//!
//! Files and directories are nodes. `live` is how programs see the names, `durable` how a power cut leaves them; a change of
//! names is in `unsynced` until one of its directories is synced.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::log::{Operation, Paths};
use crate::{LossCounts, UnsyncedData};

/// Sectors are written whole or not at all.
const SECTOR: usize = 512;

type Names = BTreeMap<OsString, usize>;

#[derive(Debug)]
enum Node<'a> {
    Directory { live: Names, durable: Names },
    File { synced: Vec<u8>, unsynced: Vec<(u64, Content<'a>)> },
}

#[derive(Debug)]
enum Content<'a> {
    Write { at: usize, data: &'a [u8] },
    Truncate(usize),
}

/// A name in a directory leads to a node, or is removed.
#[derive(Debug, Clone)]
struct NameChange {
    directory: usize,
    name: OsString,
    node: Option<usize>,
}

/// Content of a path after the power cut.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Directory,
    File(Vec<u8>),
}

#[derive(Debug)]
pub(crate) struct Files<'a> {
    /// Number 0 is the recorded directory.
    nodes: Vec<Node<'a>>,
    /// Changes of names in their order; those of one operation belong together.
    unsynced: Vec<Vec<NameChange>>,
    /// Every path that ever had a node.
    mentioned: BTreeSet<PathBuf>,
    syncs: usize,
}

impl Default for Files<'_> {
    fn default() -> Self {
        let root = Node::Directory { live: Names::new(), durable: Names::new() };
        Self { nodes: vec![root], unsynced: Vec::new(), mentioned: BTreeSet::new(), syncs: 0 }
    }
}

impl<'a> Files<'a> {
    /// Performs the operation with this number. Operations on files without a name are ignored.
    pub(crate) fn perform(&mut self, number: u64, (path, second): Paths<'_>, operation: Operation<'a>) {
        match operation {
            Operation::Create => {
                if self.find(path).is_none() {
                    self.add(path, Node::File { synced: Vec::new(), unsynced: Vec::new() });
                }
            }
            Operation::MakeDirectory => {
                self.add(path, Node::Directory { live: Names::new(), durable: Names::new() });
            }
            Operation::Write { at, data } => self.change_content(number, path, Content::Write { at, data }),
            Operation::Truncate(size) => self.change_content(number, path, Content::Truncate(size)),
            Operation::Sync => self.sync(path),
            Operation::Rename => {
                if let Some(node) = self.find(path) {
                    self.change_names([(second, Some(node)), (path, None)]);
                }
            }
            Operation::Link => {
                if let Some(node) = self.find(path) {
                    self.change_names([(second, Some(node))]);
                }
            }
            Operation::Remove => self.change_names([(path, None)]),
        }
    }

    fn find(&self, path: &Path) -> Option<usize> {
        path.iter().try_fold(0, |at, name| match &self.nodes[at] {
            Node::Directory { live, .. } => live.get(name).copied(),
            Node::File { .. } => None,
        })
    }

    fn add(&mut self, path: &Path, node: Node<'a>) {
        self.nodes.push(node);
        self.change_names([(path, Some(self.nodes.len() - 1))]);
    }

    /// Changes the names of one operation.
    fn change_names<const N: usize>(&mut self, changes: [(&Path, Option<usize>); N]) {
        let mut made = Vec::new();
        for (path, node) in changes {
            let parent = path.parent().and_then(|parent| self.find(parent));
            let (Some(directory), Some(name)) = (parent, path.file_name()) else { continue };
            let change = NameChange { directory, name: name.to_owned(), node };
            if let Node::Directory { live, .. } = &mut self.nodes[directory] {
                apply_name(live, &change);
            }
            self.mentioned.insert(path.to_owned());
            made.push(change);
        }
        self.unsynced.push(made);
    }

    fn change_content(&mut self, number: u64, path: &Path, content: Content<'a>) {
        let Some(found) = self.find(path) else { return };
        if let Node::File { unsynced, .. } = &mut self.nodes[found] {
            unsynced.push((number, content));
        }
    }

    fn sync(&mut self, path: &Path) {
        let Some(found) = self.find(path) else { return };
        self.syncs += 1;
        match &mut self.nodes[found] {
            Node::File { synced, unsynced } => {
                unsynced.drain(..).for_each(|(_, content)| apply_content(synced, &content));
            }
            Node::Directory { .. } => {
                let here = |change: &NameChange| change.directory == found;
                let now = self.unsynced.extract_if(.., |changes| changes.iter().any(here));
                let now: Vec<_> = now.flatten().collect();
                now.iter().for_each(|change| self.make_durable(change));
            }
        }
    }

    fn make_durable(&mut self, change: &NameChange) {
        if let Node::Directory { durable, .. } = &mut self.nodes[change.directory] {
            apply_name(durable, change);
        }
    }

    pub(crate) fn losses(&self) -> LossCounts {
        let sectors = |node: &Node<'_>| match node {
            Node::Directory { .. } => 0,
            Node::File { unsynced, .. } => unsynced.iter().map(|(_, content)| sectors(content)).sum(),
        };
        let sectors = self.nodes.iter().map(sectors).sum();
        LossCounts { syncs: self.syncs, sectors, names: self.unsynced.len() }
    }

    /// Every path that ever had a file or a directory, and what is left of them.
    pub(crate) fn after_power_cut(
        mut self,
        unsynced: UnsyncedData,
    ) -> (BTreeSet<PathBuf>, BTreeMap<PathBuf, Entry>) {
        let changes = std::mem::take(&mut self.unsynced);
        let survive = match unsynced {
            UnsyncedData::Dropped => 0,
            UnsyncedData::Kept => changes.len(),
            UnsyncedData::Partial(seed) => {
                usize::try_from(mix(seed) % (changes.len() as u64 + 1)).unwrap_or_default()
            }
        };
        changes[..survive].iter().flatten().for_each(|change| self.make_durable(change));
        let mut left = BTreeMap::new();
        self.collect(0, Path::new(""), unsynced, &mut left);
        (self.mentioned, left)
    }

    fn collect(&self, node: usize, path: &Path, unsynced: UnsyncedData, left: &mut BTreeMap<PathBuf, Entry>) {
        match &self.nodes[node] {
            Node::Directory { durable, .. } => {
                left.insert(path.to_owned(), Entry::Directory);
                durable.iter().for_each(|(name, node)| {
                    self.collect(*node, &path.join(name), unsynced, left);
                });
            }
            Node::File { synced, unsynced: writes } => {
                let mut content = synced.clone();
                for (number, write) in writes {
                    apply_unsynced(&mut content, *number, write, unsynced);
                }
                left.insert(path.to_owned(), Entry::File(content));
            }
        }
    }
}

fn apply_name(names: &mut Names, change: &NameChange) {
    match change.node {
        Some(node) => drop(names.insert(change.name.clone(), node)),
        None => drop(names.remove(&change.name)),
    }
}

fn apply_content(file: &mut Vec<u8>, content: &Content<'_>) {
    match content {
        Content::Write { at, data } => write_at(file, *at, data),
        Content::Truncate(size) => file.resize(*size, 0),
    }
}

fn sectors(content: &Content<'_>) -> usize {
    match content {
        Content::Write { data, .. } => data.len().div_ceil(SECTOR),
        Content::Truncate(_) => 1,
    }
}

fn apply_unsynced(file: &mut Vec<u8>, number: u64, content: &Content<'_>, unsynced: UnsyncedData) {
    let survives = |sector: u64| match unsynced {
        UnsyncedData::Dropped => false,
        UnsyncedData::Kept => true,
        UnsyncedData::Partial(seed) => mix(seed ^ (number * 4096 + sector)).is_multiple_of(2),
    };
    match content {
        Content::Truncate(size) => {
            if survives(0) {
                file.resize(*size, 0);
            }
        }
        Content::Write { at, data } => {
            for (sector, piece) in
                data.chunks(SECTOR).enumerate().filter(|(sector, _)| survives(*sector as u64))
            {
                write_at(file, at + sector * SECTOR, piece);
            }
        }
    }
}

fn write_at(file: &mut Vec<u8>, at: usize, data: &[u8]) {
    if file.len() < at + data.len() {
        file.resize(at + data.len(), 0);
    }
    file[at..at + data.len()].copy_from_slice(data);
}

pub(crate) fn mix(seed: u64) -> u64 {
    let seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
