// The list of topologies: a link takes the token along that stands in this page's address.
for (const link of document.querySelectorAll("a[data-page]")) link.hash = location.hash;
