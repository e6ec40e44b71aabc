"""Commands over session files: conversion, inspection, repair, cutting, merging, redaction."""
