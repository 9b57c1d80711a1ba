// Stands in for packages that a dependency loads at its start and that Petri never uses: dockerode's ssh transport
// (Petri runs the machine's own ssh) and its BuildKit session. Using one of them is an error, not a silence.
const absent = new Proxy(function absent() {}, {
  get(_, name) {
    if (name === '__esModule' || name === 'default' || typeof name === 'symbol') return undefined;
    return absent;
  },
  apply() {
    throw new Error('This part of the Docker client is not in Petri.');
  },
  construct() {
    throw new Error('This part of the Docker client is not in Petri.');
  },
});
module.exports = absent;
