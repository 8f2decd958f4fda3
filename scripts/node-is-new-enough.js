// Succeeds in a Node that tests the page: from 20.11 on the test runner has a time limit for each test.
// A version as argument is compared instead of this Node's own.
const [major, minor] = (process.argv[2] ?? process.versions.node).split('.').map(Number);
process.exit(20 < major || (major === 20 && 11 <= minor) ? 0 : 1);
